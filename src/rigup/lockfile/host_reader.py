"""Reads checkpoints that lie on hosts, over SSH, for `rigup lock`: names, headers, hashes. Changes nothing there."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

from rigup.checkpoints.byte_source import ByteSource
from rigup.checkpoints.repository import Repository, files_of, local_name
from rigup.errors import HostFailed, InputError
from rigup.lock import LockedFile
from rigup.project.inventory import HostEntry
from rigup.units import bytes_text

if TYPE_CHECKING:
    from rigup.host import Host

HINT = "on the host: check that the file is complete"


class HostReader:
    """The hosts that were asked so far, each with its connection. A context manager: leaving it ends them."""

    def __init__(self, sudo_password: str | None, log: Callable[[str], None]) -> None:
        self._password = sudo_password
        self._log = log
        self._hosts: dict[str, Host] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def repository(self, entry: HostEntry, location: str) -> Repository:
        """The checkpoint at a path of a host: a folder, or a GGUF file and its shards.

        Raises InputError for what is not there or lies where it must not, Unreachable, and HostFailed.
        """
        from rigup.operations.weights import host_files

        self._log(f"reading {location} on {entry.name}")
        host = self._host(entry)
        is_file = location.endswith(".gguf")
        folder, _, name = location.rpartition("/")
        folder = (folder or "/") if is_file else location
        names = files_of(location, host_files.file_names(host, folder)) if is_file else None
        if names is not None and name not in names:
            host_files.file_sizes(host, [location])  # says why it is none
            raise InputError(
                f"{entry.name}: {location}: a lock cannot hold this name", "rename it: letters, digits and _ + . -"
            )
        paths = {file: _below(folder, file) for file in names or host_files.file_names(host, folder)}
        by_path = host_files.file_sizes(host, list(paths.values())) if paths else {}
        sizes = {file: by_path[path] for file, path in paths.items()}
        where = f"{entry.name}: {location}"

        def source(file: str) -> ByteSource:
            read = functools.partial(host_files.read_part, host, paths[file])
            return ByteSource(f"{where}: {file}", sizes[file], HINT, read)

        return Repository(
            name=local_name(location),
            where=where,
            label=f"{entry.name}:{location}",
            revision=None,
            files=sizes,
            content=lambda file: source(file).read(0, sizes[file]),
            source=source,
            location=location,
        )

    def hashed(self, entry: HostEntry, folder: str, sizes: Iterable[tuple[str, int]]) -> tuple[LockedFile, ...]:
        """The files of a folder of a host, each with its sha256."""
        from rigup.operations.weights import host_files

        found = []
        for name, size in sizes:
            path = _below(folder, name)
            self._log(f"hashing {path} on {entry.name}, {bytes_text(size)}")
            found.append(LockedFile(path=name, size=size, sha256=host_files.sha256(self._host(entry), path, size)))
        return tuple(found)

    def _host(self, entry: HostEntry) -> Host:
        if entry.name not in self._hosts:
            from rigup.connection import pyinfra_internals
            from rigup.connection.connections import Connections

            connections = Connections({entry.name: entry.data}, self._password)
            self._open.callback(connections.leave)
            pyinfra_internals.set_stage(connections.state, "connect")
            host: Any = next(iter(connections.state.inventory))
            if not connections.handshake(host).probe.os:
                raise HostFailed(
                    f"{entry.name}: no response from the host probe", f"check that 'ssh {entry.name} true' works"
                )
            self._hosts[entry.name] = host
        return self._hosts[entry.name]


def _below(folder: str, file: str) -> str:
    return f"{folder.rstrip('/')}/{file}"
