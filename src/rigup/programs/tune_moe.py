"""Runs on a host, by hand or as a transient unit: an engine's own tuner, then the same tool again to measure.

    python3 tune_moe.py JOB.json

JOB: {"work": folder, "python": interpreter of the build, "tune": [argv], "measure": argv, "gpus": [index], "runs": n,
"variable": name, "baseline": folder or null, "tokens": [n], "below": "" or "configs"}. Each argv of "tune" is for one
number of tokens and writes a table into its working directory. "measure" runs `runs` times with and without the tuned
table, alternating, on the first GPU. WORK/modules precedes the build's own modules, so that `tuner_ray.py` acts as
`ray`. WORK/result.json holds name, table, Triton's version and all times in microseconds.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

if __package__:
    from rigup.programs.unit_status import notify_status
else:
    sys.dont_write_bytecode = True
    from unit_status import notify_status  # type: ignore[import-not-found, no-redef]

TIMES = re.compile(r"Batch size: (\d+), config: .*?Kernel time: ([\d.]+) us", re.DOTALL)
POLL_SECONDS = 1.0


class TuningError(Exception):
    """Ends the program with this message as its last line."""


def run(argv: list[str], folder: Path, gpu: int, variables: dict[str, str]) -> str:
    """Runs the tool once in its own folder; returns its output. Raises TuningError with the output's last line."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(gpu), "HF_HUB_OFFLINE": "1"}
    environment = {**os.environ, **own, **variables}
    done = subprocess.run(
        argv, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    print(done.stdout, flush=True)
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        last = lines[-1] if lines else "no output"
        raise TuningError(f"the tuner exited with status {done.returncode}: {last}")
    return done.stdout


def tune(job: dict[str, Any], work: Path) -> None:
    """Tunes every number of tokens, one at a time per GPU. The first failure ends it."""
    waiting: queue.SimpleQueue[tuple[int, list[str]]] = queue.SimpleQueue()
    for number, argv in enumerate(job["tune"]):
        waiting.put((number, argv))
    failures: list[Exception] = []

    def serve(gpu: int) -> None:
        while not failures:
            try:
                number, argv = waiting.get_nowait()
            except queue.Empty:
                return
            folder = work / f"tune-{number}"
            try:
                run(argv, folder, gpu, {"RIGUP_PROGRESS": str(work / f"progress-{number}")})
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=serve, args=(gpu,)) for gpu in job["gpus"]]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        notify_status(how_far(work, len(job["tune"])))
        for thread in threads:
            thread.join(POLL_SECONDS / len(threads))
    if failures:
        raise failures[0]


def how_far(work: Path, searches: int) -> str:
    """ "123/11520 tuning": configurations tried, out of all searches' if each were as long as the longest."""
    done, most = 0, 0
    for path in work.glob("progress-*"):
        tried, _, total = path.read_text().partition("/")
        if tried.isdigit() and total.isdigit():
            done, most = done + int(tried), max(most, int(total))
    return f"{done}/{most * searches} tuning" if most else "starting the tuner"


def merged(work: Path, searches: int) -> tuple[str, dict[str, Any]]:
    """The table's name and all its rows. Raises TuningError if the searches left no table, or several names."""
    found = [path for number in range(searches) for path in (work / f"tune-{number}").glob("E=*.json")]
    names = {path.name for path in found}
    if len(found) != searches or len(names) != 1:
        raise TuningError(f"the tuner wrote {len(found)} tables, expected {searches}: {', '.join(sorted(names))}")
    table: dict[str, Any] = {}
    for path in found:
        table.update({key: row for key, row in json.loads(path.read_text()).items() if key.isdigit()})
    return names.pop(), {key: table[key] for key in sorted(table, key=int)}


def measured(output: str, tokens: list[int]) -> dict[str, float]:
    """Microseconds by number of tokens. Raises TuningError if one is missing."""
    times = {int(count): float(time) for count, time in TIMES.findall(output)}
    missing = [str(count) for count in tokens if count not in times]
    if missing:
        raise TuningError(f"the tuner measured nothing for {', '.join(missing)} tokens")
    return {str(count): times[count] for count in tokens}


def main(job: dict[str, Any]) -> None:
    """Tunes, then measures both tables alternately, then writes the result atomically."""
    work = Path(job["work"])
    os.environ |= {"PYTHONPATH": str(work / "modules"), "HOME": str(work / "home")}
    for left in (*work.glob("tune-*"), *work.glob("progress-*"), work / "tuned", work / "measure"):
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    notify_status("reading Triton's version")
    triton = subprocess.run(
        [job["python"], "-c", "import triton; print(triton.__version__)"], capture_output=True, text=True
    )
    if triton.returncode:
        lines = triton.stderr.strip().splitlines()
        raise TuningError(f"cannot import the build's Triton: {lines[-1] if lines else 'no output'}")
    version = triton.stdout.split()[-1].partition("+")[0]
    began = time.monotonic()
    tune(job, work)
    seconds = time.monotonic() - began
    name, table = merged(work, len(job["tune"]))
    below = f"{job['below']}/triton_{version.replace('.', '_')}" if job["below"] else ""
    tuned = work / "tuned" / below / name
    tuned.parent.mkdir(parents=True)
    tuned.write_text(json.dumps(table))
    folders = {"baseline": job["baseline"], "tuned": str(work / "tuned")}
    times: dict[str, list[dict[str, float]]] = {side: [] for side in folders}
    measuring = f"/{2 * job['runs']} measuring against the previous kernel"
    for number in range(job["runs"]):
        for side in ("baseline", "tuned") if number % 2 else ("tuned", "baseline"):
            notify_status(f"{sum(map(len, times.values()))}{measuring}")
            variables = {job["variable"]: folders[side]} if folders[side] else {}
            output = run(job["measure"], work / "measure", job["gpus"][0], variables)
            times[side].append(measured(output, job["tokens"]))
    result = {"name": name, "table": table, "triton": version, "times": times, "tuning_seconds": round(seconds, 1)}
    fresh = work / "result.new"
    fresh.write_text(json.dumps(result))
    fresh.replace(work / "result.json")


if __name__ == "__main__":
    try:
        main(json.loads(Path(sys.argv[1]).read_text()))
    except TuningError as error:
        sys.exit(str(error))
