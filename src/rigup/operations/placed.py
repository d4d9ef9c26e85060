"""Folders and programs of root's on a host, each kind compared in one command; pyinfra asks twice for each of them."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup.operations import remote
from rigup.operations.steps import step
from rigup.operations.uploads import send_file

_STAT = "LC_ALL=C stat -L -c '%F|%a|%U:%G|%n' --"
_FOLDER, _FILE = "directory|755|root:root", "regular file|644|root:root"
_RENAME = (
    'cd "$1"; shift; for name; do chown root:root "$name.new"; chmod 644 "$name.new"; mv -f "$name.new" "$name"; done'
)


class Stands(FactBase[dict[str, str]]):
    """By path: kind, mode and owner of what is there, "directory|755|root:root". A link counts as what it leads to."""

    @staticmethod
    def default() -> dict[str, str]:
        return {}

    def command(self, paths: tuple[str, ...]) -> str:
        return f"{_STAT} {shlex.join(paths)} 2>/dev/null; true"

    def process(self, output: list[str]) -> dict[str, str]:
        return {path: _plain(stands) for stands, _, path in (line.rpartition("|") for line in output) if stands}


class Contents(FactBase[dict[str, str]]):
    """By name, of these files in one folder: their sha256, and how they stand as `Stands` says it."""

    @staticmethod
    def default() -> dict[str, str]:
        return {}

    def command(self, folder: str, names: tuple[str, ...]) -> str:
        files = shlex.join(names)
        both = f"{_STAT} {files}; sha256sum -- {files}"
        return f"cd {shlex.quote(folder)} 2>/dev/null && {{ {both}; }} 2>/dev/null; true"

    def process(self, output: list[str]) -> dict[str, str]:
        stands: dict[str, str] = {}
        hashes: dict[str, str] = {}
        for line in output:
            if "|" in line:
                how, _, name = line.rpartition("|")
                stands[name] = _plain(how)
            else:
                digest, _, name = line.partition("  ")
                hashes[name] = digest
        return {name: f"{hashes.get(name, '')} {how}" for name, how in stands.items()}


def _plain(stands: str) -> str:
    """An empty file is a file."""
    return stands.replace("regular empty file|", "regular file|", 1)


@operation()
def folders(paths: tuple[str, ...]) -> Generator[FunctionCommand, None, None]:
    """Have these folders, of root's, for all to read.

    + paths: absolute
    """
    there = host.get_fact(Stands, paths=paths)
    wrong = tuple(path for path in paths if there.get(path) != _FOLDER)
    if not wrong:
        host.noop("the folders are as wanted")
        return
    yield step(_make, wrong)


def _make(host: Any, paths: Iterable[str]) -> None:
    remote.tell(host, "install", "-d", "-m", "755", "-o", "root", "-g", "root", *paths)


@operation()
def programs(folder: str, sources: tuple[Path, ...]) -> Generator[FunctionCommand, None, None]:
    """Have these files in a folder, each whole or as it was, of root's, for all to read.

    + folder: of the host
    + sources: of this machine
    """
    there = host.get_fact(Contents, folder=folder, names=tuple(source.name for source in sources))
    wanted = {source: f"{hashlib.sha256(source.read_bytes()).hexdigest()} {_FILE}" for source in sources}
    wrong = tuple(source for source, stands in wanted.items() if there.get(source.name) != stands)
    if not wrong:
        host.noop("the programs are as wanted")
        return
    yield step(_place, folder, wrong)


def _place(host: Any, folder: str, sources: Iterable[Path]) -> None:
    for source in sources:
        send_file(host, source, f"{folder}/{source.name}.new")
    remote.script(host, _RENAME, folder, *(source.name for source in sources), doing=f"writing into {folder}")
