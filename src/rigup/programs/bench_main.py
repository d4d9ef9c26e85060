"""Measures one endpoint: reads what to do, and prints what it finds, one JSON object a line.

The request is the first line of standard input: {"url", "key", "key_file", "user", "model", "chat", "levels", "warmup",
"timeout_s", "gpus", "leave_out", "seed"}. The end of standard input means: stop now, and tell what is known so far.

    {"endpoint": {...}}   what is measured            {"left_out": {...}}   a level that the endpoint has no room for
    {"progress": {...}}   twice a second              {"level": {...}}      what one level came to
    {"end": {...}}        the last line, or           {"error": {"kind", "message", "hint"}}

Python 3.10 standard library only, and nvidia-ml-py where GPUs are watched.
"""

from __future__ import annotations

import json
import os
import platform
import pwd
import random
import resource
import sys
import threading
from pathlib import Path
from typing import Any

if __package__:
    from rigup.programs.bench_endpoint import Endpoint, open_endpoint
    from rigup.programs.bench_http import Target, Unusable
    from rigup.programs.bench_load import Level, Load, Outcome
    from rigup.programs.bench_statistics import distribution, figures
    from rigup.programs.bench_watch import Watch, load_of_engine, load_of_gpus, of_engine, of_gpus
else:
    sys.dont_write_bytecode = True
    from bench_endpoint import Endpoint, open_endpoint  # type: ignore[import-not-found, no-redef]
    from bench_http import Target, Unusable  # type: ignore[import-not-found, no-redef]
    from bench_load import Level, Load, Outcome  # type: ignore[import-not-found, no-redef]
    from bench_statistics import distribution, figures  # type: ignore[import-not-found, no-redef]
    from bench_watch import (  # type: ignore[import-not-found, no-redef]
        Watch,
        load_of_engine,
        load_of_gpus,
        of_engine,
        of_gpus,
    )

SPARE_FILES = 64

_stop = threading.Event()


def main() -> int:
    """Runs what standard input asks for. Always 0 once it has begun: what went wrong is in the lines."""
    request = json.loads(sys.stdin.readline())
    watches: list[Watch] = []
    try:
        _prepare(request)
        run(request, watches)
    except Unusable as error:
        _say("error", {"kind": error.kind, "message": error.message, "hint": error.hint})
    finally:
        for watch in watches:
            watch.stop()
    sys.stdout.flush()
    os._exit(0)  # whatever a thread still waits for


def run(request: dict[str, Any], watches: list[Watch]) -> None:
    """Opens the endpoint, warms it up, and measures level after level. Raises Unusable."""
    target = Target.of(request["url"], request["key"])
    seed = request["seed"] if request["seed"] is not None else random.randrange(1 << 32)
    levels = [Level(**level, timeout_s=request["timeout_s"]) for level in request["levels"]]
    endpoint = open_endpoint(target, request["model"], request["chat"], request["timeout_s"], seed)
    _say("endpoint", endpoint.told())
    levels = _with_room(endpoint, levels, request["leave_out"])
    engine = Watch(lambda: of_engine(target))
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
        found = _told(level, outcome, engine, gpus)
        _say("level", found)
        if not outcome.complete:
            why = "stopped"
        elif not found["requests"]["all"]:
            why = f"not one answer at concurrency {level.concurrency}"
        if why:
            break
    _say("end", {"complete": not why, "why": why, "client": client})


def _prepare(request: dict[str, Any]) -> None:
    """Open files for all streams, the key, and then no more rights than that takes."""
    needed = max(level["concurrency"] for level in request["levels"]) + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(hard, needed)))
        except (ValueError, OSError):
            raise Unusable(
                "input",
                f"{needed - SPARE_FILES} streams at once need {needed} open files, and {hard} are allowed here",
                f"raise it (ulimit -Hn), or ask for at most {max(1, hard - SPARE_FILES)} at once",
            ) from None
    if request["key_file"]:
        try:
            request["key"] = Path(request["key_file"]).read_text().strip()
        except OSError as error:
            raise Unusable(
                "failed", f"{request['key_file']}: {error.strerror}", "rigup apply puts the key there"
            ) from None
    if request["user"] and os.geteuid() == 0:
        _become(request["user"])


def _become(user: str) -> None:
    for name in (user, "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        os.setgroups([])
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
        return


def _with_room(endpoint: Endpoint, levels: list[Level], leave_out: bool) -> list[Level]:
    """The levels whose prompts and answers fit into the endpoint's context. Raises Unusable where one has to."""
    kept = []
    for level in levels:
        needed = level.input + level.output
        if endpoint.context is None or needed <= endpoint.context:
            kept.append(level)
            continue
        why = (
            f"{level.input} tokens of prompt and {level.output} of answer are {needed}, "
            f"and {endpoint.form.model} takes {endpoint.context}"
        )
        if not leave_out:
            raise Unusable("input", why, "ask for less with --input and --output")
        _say("left_out", {"input": level.input, "output": level.output, "why": why})
    if not kept:
        raise Unusable(
            "input", f"{endpoint.form.model} takes {endpoint.context} tokens: no level of this preset fits", ""
        )
    return kept


def _measure(endpoint: Endpoint, level: Level, name: str, seed: int) -> Outcome:
    return Load(endpoint, level, name, seed, _stop.is_set, lambda said: _say("progress", said)).run()


def _told(level: Level, outcome: Outcome, engine: Watch, gpus: Watch | None) -> dict[str, Any]:
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


def _say(kind: str, content: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({kind: content}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
