"""Root-owned folders and programs on a host, compared in one command per kind (pyinfra needs two per file)."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Generator, Iterable
from pathlib import Path

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.steps import step

_STAT = "LC_ALL=C stat -L -c '%F|%a|%U:%G|%n' --"
_FOLDER, _FILE = "directory|755|root:root", "regular file|644|root:root"
_RENAME = (
    'cd "$1"; shift; for name; do chown root:root "$name.new"; chmod 644 "$name.new"; mv -fT "$name.new" "$name"; done'
)


class FileModes(FactBase[dict[str, str]]):
    """Kind, mode and owner by path, such as "directory|755|root:root". Links are followed."""

    default = dict

    def command(self, paths: tuple[str, ...]) -> str:
        return f"{_STAT} {shlex.join(paths)} 2>/dev/null; true"

    def process(self, output: list[str]) -> dict[str, str]:
        return {path: _plain(status) for status, _, path in (line.rpartition("|") for line in output) if status}


class LooseFiles(FactBase[tuple[str, ...]]):
    """The given folders that contain an entry, at any depth, that root does not own or others can write to."""

    default = tuple

    def command(self, folders: tuple[str, ...]) -> str:
        find = (
            "[ -z \"$(find {0} '(' ! -user root -o ! -type l -perm /022 ')' -print -quit 2>/dev/null)\" ] || echo {0}"
        )
        return "; ".join(find.format(shlex.quote(folder)) for folder in folders)

    def process(self, output: list[str]) -> tuple[str, ...]:
        return tuple(line for line in output if line)


class FileDigests(FactBase[dict[str, str]]):
    """sha256, kind, mode and owner of the given files in one folder, by name."""

    default = dict

    def command(self, folder: str, names: tuple[str, ...]) -> str:
        files = shlex.join(names)
        both = f"{_STAT} {files}; sha256sum -- {files}"
        return f"cd {shlex.quote(folder)} 2>/dev/null && {{ {both}; }} 2>/dev/null; true"

    def process(self, output: list[str]) -> dict[str, str]:
        statuses: dict[str, str] = {}
        hashes: dict[str, str] = {}
        for line in output:
            if "|" in line:
                status, _, name = line.rpartition("|")
                statuses[name] = _plain(status)
            else:
                digest, _, name = line.partition("  ")
                hashes[name] = digest
        return {name: f"{hashes.get(name, '')} {status}" for name, status in statuses.items()}


def _plain(status: str) -> str:
    """Treats an empty file as a file."""
    return status.replace("regular empty file|", "regular file|", 1)


@operation()
def folders(
    paths: tuple[str, ...], closed: tuple[str, ...] = (), absent: tuple[str, ...] = ()
) -> Generator[FunctionCommand, None, None]:
    """Ensures that these folders exist, owned by root and readable by all.

    + paths: absolute; parents before children
    + closed: those in which every entry, at any depth, must be owned by root and not writable by others
    + absent: paths that must not exist
    """
    there = host.get_fact(FileModes, paths=(*paths, *absent))
    wrong = tuple(path for path in paths if there.get(path) != _FOLDER)
    loose = host.get_fact(LooseFiles, folders=closed) if closed else ()
    unwanted = tuple(path for path in absent if path in there)
    if not (wrong or loose or unwanted):
        host.noop("the folders are up to date")
        return
    yield step(_make, wrong, loose, unwanted)


def _make(host: Host, paths: tuple[str, ...], loose: tuple[str, ...], unwanted: tuple[str, ...]) -> None:
    """Changes the folders without following links, as other users may have created links to anything."""
    if paths:
        remote.make_folders(host, *paths)
    if loose:
        remote.script(host, 'chown -R -P root -- "$@"; chmod -R go-w -- "$@"', *loose, doing=f"closing {loose[0]}")
    if unwanted:
        remote.check_output(host, "rm", "-rf", "--", *unwanted)


@operation()
def programs(folder: str, sources: tuple[Path, ...]) -> Generator[FunctionCommand, None, None]:
    """Ensures that these files are in a folder, owned by root and readable by all; each is replaced atomically.

    + folder: on the host
    + sources: on this machine
    """
    there = host.get_fact(FileDigests, folder=folder, names=tuple(source.name for source in sources))
    wanted = {source: f"{hashlib.sha256(source.read_bytes()).hexdigest()} {_FILE}" for source in sources}
    wrong = tuple(source for source, status in wanted.items() if there.get(source.name) != status)
    if not wrong:
        host.noop("the programs are up to date")
        return
    yield step(_place, folder, wrong)


def _place(host: Host, folder: str, sources: Iterable[Path]) -> None:
    for source in sources:
        remote.send_file(host, source, f"{folder}/{source.name}.new")
    remote.script(host, _RENAME, folder, *(source.name for source in sources), doing=f"writing into {folder}")
