"""Measures one endpoint: reads a request, and prints results as one JSON object per line.

The request is the first line of standard input: {"url", "key", "key_file", "unit", "user", "model", "chat", "levels",
"warmup", "timeout_s", "gpus", "leave_out", "seed"}. unit: the systemd unit that must own the port, null for an address
from the user. End of file on standard input means: stop now and report the results so far.

    {"endpoint": {...}}   the endpoint being measured {"left_out": {...}}   a level that exceeds the endpoint's context
    {"progress": {...}}   twice a second              {"level": {...}}      the result of one level
    {"end": {...}}        the last line, or           {"error": {"kind", "message", "hint"}}

Needs nvidia-ml-py where GPUs are watched.
"""

from __future__ import annotations

import json
import os
import platform
import random
import resource
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from rigup.programs.bench.bench_endpoint import MeasuredEndpoint, of_model, open_endpoint
from rigup.programs.bench.bench_load import Level, LevelResult, Load
from rigup.programs.bench.bench_statistics import distribution, figures
from rigup.programs.bench.bench_target import EndpointError, Target
from rigup.programs.bench.bench_watch import Watch, load_of_engine, load_of_gpus, of_engine, of_gpus
from rigup.programs.listeners import ForeignPort, UnitPort
from rigup.programs.unprivileged import give_up_root

SPARE_FILES = 64

_stop = threading.Event()


def main() -> int:
    """Runs the request on standard input. Returns 0 once it has begun; errors are in the output."""
    request = json.loads(sys.stdin.readline())
    watches: list[Watch] = []
    try:
        run(request, _prepare(request), watches)
    except EndpointError as error:
        _emit("error", {"kind": error.kind, "message": error.message, "hint": error.hint})
    finally:
        for watch in watches:
            watch.stop()
    sys.stdout.flush()
    os._exit(0)  # even if a thread is still waiting


def run(request: dict[str, Any], target: Target, watches: list[Watch]) -> None:
    """Opens the endpoint, warms it up, and measures level after level. Raises EndpointError."""
    seed = request["seed"] if request["seed"] is not None else random.randrange(1 << 32)
    levels = [Level(**level, timeout_s=request["timeout_s"]) for level in request["levels"]]
    endpoint = open_endpoint(target, request["model"], request["chat"], request["timeout_s"], seed)
    _emit("endpoint", endpoint.as_json())
    levels = _with_room(endpoint, levels, request["leave_out"])
    metrics = of_model("/metrics", endpoint.engine, endpoint.form.model)
    engine = Watch(lambda: of_engine(target, metrics))
    watches.append(engine)
    gpus = Watch(of_gpus) if request["gpus"] else None
    watches += [gpus] if gpus else []
    for watch in watches:
        watch.listen()
    threading.Thread(target=_wait_for_the_end_of_input, daemon=True).start()
    why, client = "", {"python": platform.python_version(), "machine": platform.node()}
    for number, level in enumerate(levels):
        if request["warmup"] and (number == 0 or level.seconds is None):
            warm = Level(1, level.input, level.output, requests=request["warmup"], timeout_s=level.timeout_s)
            _measure(endpoint, warm, f"warm{number}", seed + 2 * number + 1)
        outcome = _measure(endpoint, level, f"level{number}", seed + 2 * number)
        found = _level_json(level, outcome, engine, gpus)
        _emit("level", found)
        if not outcome.complete:
            why = "stopped"
        elif not found["requests"]["all"]:
            why = f"no answer at concurrency {level.concurrency}"
        if why:
            break
    _emit("end", {"complete": not why, "why": why, "client": client})


def _prepare(request: dict[str, Any]) -> Target:
    """Raises the file limit, checks the port's owner, reads the key, then drops privileges."""
    needed = max(level["concurrency"] for level in request["levels"]) + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(hard, needed)))
        except (ValueError, OSError):
            raise EndpointError(
                "input",
                f"{needed - SPARE_FILES} concurrent streams need {needed} open files; the limit is {hard}",
                f"raise the limit (ulimit -Hn), or use --concurrency {max(1, hard - SPARE_FILES)} or less",
            ) from None
    if request["key_file"]:
        try:
            request["key"] = Path(request["key_file"]).read_text().strip()
        except OSError as error:
            raise EndpointError(
                "failed", f"{request['key_file']}: {error.strerror}", "run rigup apply to install the key"
            ) from None
    target = Target.of(request["url"], request["key"])
    if request["unit"]:
        port = UnitPort(request["unit"])
        for _, address in target.addresses():
            try:
                port.learn(address)
            except ForeignPort as error:
                raise EndpointError("failed", str(error), "check the service with rigup status") from None
        target = replace(target, check=port.check)
    if request["user"]:
        give_up_root((request["user"], "nobody"))
    return target


def _with_room(endpoint: MeasuredEndpoint, levels: list[Level], leave_out: bool) -> list[Level]:
    """The levels that fit into the endpoint's context. Raises EndpointError if a required one does not."""
    kept = []
    for level in levels:
        needed = level.input + level.output
        if endpoint.context is None or needed <= endpoint.context:
            kept.append(level)
            continue
        why = (
            f"{level.input} prompt and {level.output} answer tokens are {needed}; "
            f"{endpoint.form.model} accepts {endpoint.context}"
        )
        if not leave_out:
            raise EndpointError("input", why, "reduce --input or --output")
        _emit("left_out", {"input": level.input, "output": level.output, "why": why})
    if not kept:
        raise EndpointError(
            "input", f"{endpoint.form.model} accepts {endpoint.context} tokens; no level of this preset fits", ""
        )
    return kept


def _measure(endpoint: MeasuredEndpoint, level: Level, name: str, seed: int) -> LevelResult:
    return Load(endpoint, level, name, seed, _stop.is_set, lambda state: _emit("progress", state)).run()


def _level_json(level: Level, outcome: LevelResult, engine: Watch, gpus: Watch | None) -> dict[str, Any]:
    late = distribution([[1000 * seconds for seconds in outcome.late]])
    return {
        "concurrency": level.concurrency,
        "input": level.input,
        "output": level.output,
        "complete": outcome.complete,
        **figures(outcome.records, outcome.begin, outcome.end, evenly=level.seconds is not None),
        "engine": load_of_engine(engine.between(outcome.begin, outcome.end), level.concurrency),
        "gpus": load_of_gpus(gpus.between(outcome.begin, outcome.end)) if gpus else [],
        "client": {
            "busy": outcome.busy,
            "late_ms": {key: late[key] for key in ("p50", "p99", "most")} if late else None,
        },
    }


def _wait_for_the_end_of_input() -> None:
    while sys.stdin.readline():
        pass
    _stop.set()


def _emit(kind: str, content: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({kind: content}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
