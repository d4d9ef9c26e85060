"""Finds the owner of a port, so that a secret is sent only to the service's own unit.

Any local user can listen on a port that is free, such as a stopped service's. /proc/net/tcp lists the listening sockets
by number (inode); only root can see which process holds a socket.

The kernel does not let two users listen on the same address, and never reuses a socket's number. So if the same sockets
listen before and after a connection is made, the connection leads to one of them. Every connection is checked for that;
whether a socket belongs to the unit is found out once for each socket.

usage: listeners.py UNIT HOST PORT

Runs as root. Prints a line with "ok" or the port's owner; then, after each line on standard input, checks again for a
connection made since: "ok" if it leads to the unit.
"""

from __future__ import annotations

import functools
import os
import pwd
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

TABLES = {socket.AF_INET: "/proc/net/tcp", socket.AF_INET6: "/proc/net/tcp6"}
LISTEN = "0A"
MAPPED = b"\0" * 10 + b"\xff\xff"


class ForeignPort(OSError):
    """A port does not provably belong to the unit; the message names its owner."""


class SocketsChanged(OSError):
    """The listening sockets changed before the connection was made; the caller should retry."""


class UnitPort:
    """A port of this host that a unit should listen on."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self._own: set[int] = set()

    def connect(self, host: str, port: int, seconds: float) -> socket.socket:
        """Connects to the unit. Raises ForeignPort if the port is another unit's, else other OSErrors."""
        failed: OSError = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(seconds)
                self.learn(address)
                connection.connect(address)
                self.check(connection)
                return connection
            except OSError as error:
                connection.close()
                if isinstance(error, ForeignPort):
                    raise
                failed = error
        raise failed

    def learn(self, address: tuple[Any, ...]) -> None:
        """As root: learns which sockets on this address belong to the unit, for `check`.

        Learns nothing if no socket listens. Raises ForeignPort if one belongs to another unit.
        """
        self._own |= self._of_unit(address, listening(address))

    def check(self, connection: socket.socket) -> None:
        """Raises SocketsChanged unless the sockets were known to be the unit's before the connection was made.

        Needs no privileges.
        """
        self.check_address(connection.getpeername())

    def check_address(self, address: tuple[Any, ...]) -> None:
        """Like `check`, for a connection that another process has made to this address."""
        found = listening(address)
        if not found:
            raise SocketsChanged(f"nothing listens on port {address[1]} any more")
        if not found.keys() <= self._own:
            raise SocketsChanged(f"port {address[1]} now belongs to user {_user(next(iter(found.values())))}")

    def _of_unit(self, address: tuple[Any, ...], found: dict[int, int]) -> set[int]:
        """The socket numbers, after checking that the unit holds them; found: number to user. Raises ForeignPort."""
        unknown = found.keys() - self._own
        if unknown and not unknown <= set(_held(unknown, self.unit)):
            owner = next(iter(found.values()))
            raise ForeignPort(f"port {address[1]} belongs to {_holder(unknown, owner)}, not to {self.unit}")
        return {*found}


def listening(address: tuple[Any, ...]) -> dict[int, int]:
    """The sockets that accept connections to an address of this host: number to user."""
    host, port = address[0].partition("%")[0], address[1]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host)
    if packed.startswith(MAPPED):
        family, packed = socket.AF_INET, packed[len(MAPPED) :]
    either = {_hex(packed, port), _hex(bytes(len(packed)), port)}
    if family == socket.AF_INET6:
        return _listening(family, either)
    # an IPv6 socket also receives IPv4 connections that no IPv4 socket accepts
    both = {_hex(MAPPED + packed, port), _hex(bytes(16), port)}
    return _listening(family, either) or _listening(socket.AF_INET6, both)


def unit_of(pid: str) -> str:
    """The unit of a process by its control group, which only systemd assigns; "" if the process is gone.

    The first unit in the path counts: below user@1000.service, users choose the names of groups.
    """
    hierarchy, root = _systemd()
    for part in _groups(pid).get(hierarchy, "").removeprefix(root).split("/"):
        if part.endswith((".service", ".scope")):
            return part
    return ""


@functools.cache
def _systemd() -> tuple[str, str]:
    """The hierarchy in which systemd keeps units ("" for v2), and the root of this machine or container in it.

    It is derived from the group of systemd itself.
    """
    found = _groups("1")
    for hierarchy in ("name=systemd", ""):
        root, init, _ = found.get(hierarchy, "").rpartition("/init.scope")
        if init:
            return hierarchy, root
    return "", ""


def _groups(pid: str) -> dict[str, str]:
    """A process's control groups by hierarchy."""
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            return {controllers: path for _, controllers, path in (line.rstrip("\n").split(":", 2) for line in file)}
    except OSError:
        return {}


def _listening(family: socket.AddressFamily, local: set[str]) -> dict[int, int]:
    """The listening sockets of one family. The kernel lists them first, so that reading stops before connections."""
    found = {}
    try:
        with open(TABLES[family]) as file:
            next(file)
            for line in file:
                _, own, _, state, _, _, _, user, _, inode, *_ = line.split()
                if state != LISTEN:
                    break
                if own in local:
                    found[int(inode)] = int(user)
    except (OSError, StopIteration):
        pass
    return found


def _hex(packed: bytes, port: int) -> str:
    """An address in the format of /proc/net/tcp: words of 32 bits in the machine's byte order."""
    words = (int.from_bytes(packed[n : n + 4], sys.byteorder) for n in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


def _sockets(pid: str) -> Iterator[int]:
    """The socket numbers that a process holds; only root sees those of other users."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    yield int(target[8:-1])
    except OSError:
        return


def _pids() -> Iterator[str]:
    return (name for name in os.listdir("/proc") if name.isdigit())


def _held(wanted: set[int], unit: str) -> Iterator[int]:
    """The given sockets that a process of the unit holds."""
    for pid in _pids():
        if unit_of(pid) == unit:
            yield from wanted.intersection(_sockets(pid))


def _holder(wanted: set[int], owner: int) -> str:
    """The holder of one of these sockets: "user nobody (pid 123, python3)"; without the process if it is hidden."""
    for pid in _pids():
        if not wanted.isdisjoint(_sockets(pid)):
            try:
                with open(f"/proc/{pid}/comm", errors="replace") as file:
                    name = "".join(c for c in file.read() if c.isprintable())
                return f"user {_user(os.stat(f'/proc/{pid}').st_uid)} (pid {pid}, {name})"
            except OSError:
                break
    return f"user {_user(owner)}"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


class _Guard:
    """Checks every address of a host name, since a client may use any of them."""

    def __init__(self, unit: str, host: str, port: str) -> None:
        self._unit_port, self._port = UnitPort(unit), port
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        self._addresses = [address for *_, address in found]

    def learn(self) -> None:
        for address in self._taken():
            self._unit_port.learn(address)

    def check(self) -> None:
        for address in self._taken():
            self._unit_port.check_address(address)

    def _taken(self) -> list[tuple[Any, ...]]:
        taken = [address for address in self._addresses if listening(address)]
        if not taken:
            raise SocketsChanged(f"nothing listens on port {self._port}")
        return taken


def main(unit: str, host: str, port: str) -> None:
    """Answers until standard input ends. Only sockets that listen at the start can count as the unit's."""
    guard = _Guard(unit, host, port)
    _print_result(guard.learn)
    for _ in sys.stdin:
        _print_result(guard.check)


def _print_result(check: Callable[[], None]) -> None:
    try:
        check()
        print("ok", flush=True)
    except (ForeignPort, SocketsChanged) as error:
        print(error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
