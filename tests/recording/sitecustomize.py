"""Writes down which functions of the toolkit each Python process runs, for tests/recorded_use.py.

Every Python that inherits PYTHONPATH loads it; it does nothing unless RIGUP_RECORD_USE names a folder.
"""

from __future__ import annotations

import os
import sys
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType

FOLDER = os.environ.get("RIGUP_RECORD_USE", "")
ROOT = f"{Path(__file__).parents[2]}/"
TOPS = (f"{ROOT}src/", f"{ROOT}roles/")
_seen: set[CodeType] = set()
_files: dict[int, int] = {}


def begin(test: str) -> None:
    """From now on what this process runs is used by that test."""
    _seen.clear()
    _write(f"# {test}\n")


def _write(line: str) -> None:
    if os.getpid() not in _files:  # the first line, or the first of a process that was forked
        path = f"{FOLDER}/{os.getpid()}-{os.urandom(4).hex()}"
        _files[os.getpid()] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        _write(f"# {os.environ.get('PYTEST_CURRENT_TEST', '').rpartition(' ')[0]}\n")
    os.write(_files[os.getpid()], line.encode())


def _called(frame: FrameType, event: str, argument: object) -> None:
    code = frame.f_code
    if code not in _seen:
        _seen.add(code)
        function = code.co_flags & CO_OPTIMIZED and not code.co_name.startswith(
            "<"
        )  # not the body of a module or a class
        if function and code.co_filename.startswith(TOPS):
            if _is_importing(frame):
                _seen.discard(code)
                return
            _write(f"{code.co_filename.removeprefix(ROOT)}\t{code.co_qualname}\n")


def _is_importing(frame: FrameType) -> bool:
    """Whether a module of the toolkit is being made, which calls functions that nobody asked for."""
    above: FrameType | None = frame
    while above is not None:
        code = above.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(TOPS):
            return above.f_globals.get("__name__") != "__main__"
        above = above.f_back
    return False


if FOLDER:
    sys.settrace(_called)
    threading.settrace(_called)
