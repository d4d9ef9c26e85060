"""Reads cases and answers each in a copy of a process that has loaded its engine. The same for every engine."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .simulated_gpus import multiprocessors

SECONDS = 400
_MOST_MESSAGE = 600
Case = dict[str, Any]
Answer = dict[str, Any]


def model_folder(case: Case) -> str:
    """A folder with the small files of the repository: the case's "folder", or one made of "config" and "files".

    Weights are never looked at.
    """
    if "folder" in case:
        return str(case["folder"])
    folder = Path(tempfile.mkdtemp(prefix="judge-"))
    for name, said in {"config.json": case["config"], **case.get("files", {})}.items():
        (folder / name).write_text(json.dumps(said))
    return str(folder)


def in_a_fork(work: Callable[[], Any], seconds: int = SECONDS) -> Any:
    """What work() returns, worked out in a copy of this process, so that its globals stay as they are."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        signal.alarm(seconds)
        try:
            said = (True, work())
        except BaseException as error:
            said = (False, f"{type(error).__name__}: {error}")
        with os.fdopen(write, "wb") as pipe:
            pipe.write(pickle.dumps(said))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    if not content:
        raise RuntimeError(f"the fork ended by signal {status & 127}")
    good, said = pickle.loads(content)  # noqa: S301  written by a fork of this process
    if not good:
        raise RuntimeError(said)
    return said


def of_this_machine(gpu: dict[str, Any]) -> dict[str, Any]:
    """A case's "gpu"; of one that the machine has, with what its driver says."""
    if "index" not in gpu:
        return gpu
    return {**gpu, "multiprocessors": in_a_fork(partial(multiprocessors, gpu["index"]))}


def stopped(error: BaseException) -> dict[str, Any]:
    """What ended it, in the engine's own words, and where. package: whose code raised it."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    package = Path(frames[-1].filename.rpartition("-packages/")[2]).parts[0] if frames else ""
    return {"by": type(error).__name__, "message": str(error)[:_MOST_MESSAGE], "where": where, "package": package}


def answer_each(load: Callable[[Case], None], judged: Callable[[Case], Answer]) -> None:
    """Answers the lines of standard input. load: what all forks share, for the first case.

    An answer has, besides what `judged` says: "id", "seconds", and "log", the lines in which the engine says what the
    case's "words" find.
    """
    output = os.dup(1)
    os.dup2(2, 1)  # engines print to standard output
    cases = [json.loads(line) for line in sys.stdin]
    load(cases[0])
    for case in cases:
        began = time.monotonic()
        with tempfile.TemporaryFile() as log:
            try:
                answer = in_a_fork(partial(_with_output, log.fileno(), judged, case))
            except RuntimeError as error:
                answer = {"reached": "nothing", "stopped": stopped(error)}
            log.seek(0)
            lines = log.read().decode(errors="replace").splitlines()
        found = dict.fromkeys(line[:_MOST_MESSAGE] for line in lines if re.search(case["words"], line))
        seconds = round(time.monotonic() - began, 1)
        said = {"id": case["id"], **answer, "log": list(found), "seconds": seconds}
        os.write(output, (json.dumps(said, default=str) + "\n").encode())


def _with_output(file: int, judged: Callable[[Case], Answer], case: Case) -> Answer:
    for output in (1, 2):
        os.dup2(file, output)
    return judged(case)
