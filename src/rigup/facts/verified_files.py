"""The files of a checkpoint that a host has and has verified."""

from __future__ import annotations

import json
import shlex

from pyinfra.api import FactBase

_MARK = "##rigup-files##"
# The folder belongs to the worker, so a file of that name may contain anything and have any size.
_RECEIPT = "[ -f .rigup-receipt.json ] && head -c 8000000 .rigup-receipt.json"


class VerifiedFiles(FactBase[dict[str, tuple[int, str]]]):
    """Maps path to size and sha256, for the given files that have not changed since they were verified.

    folder: with the receipt, and with the files unless `place` is where they lie.

    `weights_folder.py` gives the same result, but takes ten times as long on a host.
    """

    @staticmethod
    def default() -> dict[str, tuple[int, str]]:
        return {}

    def command(self, folder: str, paths: tuple[str, ...], place: str | None = None) -> str:
        # not stat: before 2026-08 that of the Rust coreutils (Ubuntu 26.04) rounds nanoseconds, uutils/coreutils 13976
        files = shlex.join(f"./{path}" for path in paths)
        find = f"LC_ALL=C find -L {files} -maxdepth 0 -type f -printf '%s|%i|%T@|%p\\n'"
        there = f"cd {shlex.quote(place)} && {find}" if place else find
        look = f"{_RECEIPT}; echo; echo '{_MARK}'; {there}"
        return f"cd {shlex.quote(folder)} 2>/dev/null && {{ {look}; }} 2>/dev/null; true"

    def process(self, output: list[str]) -> dict[str, tuple[int, str]]:
        receipt, found = "", output
        if _MARK in output:
            receipt, found = "\n".join(output[: output.index(_MARK)]), output[output.index(_MARK) + 1 :]
        there = {}
        try:
            for size, inode, mtime, path in (line.split("|", 3) for line in found if line.count("|") >= 3):
                seconds, _, fraction = mtime.partition(".")
                is_now = {"size": int(size), "inode": int(inode), "mtime_ns": int(seconds + fraction[:9])}
                there[path.removeprefix("./")] = is_now
            entries = json.loads(receipt)["files"]
            noted = {entry["path"]: (entry.pop("sha256"), entry) for entry in entries}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # an invalid receipt proves nothing
            return {}
        return {
            path: (is_now["size"], noted[path][0])
            for path, is_now in there.items()
            if path in noted and noted[path][1] == {"path": path, **is_now}
        }
