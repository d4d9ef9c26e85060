"""Tracks which builders of this run still have to finish which build, so that other hosts wait for it."""

from __future__ import annotations

from collections.abc import Iterable

_at_work: set[str] = set()
_expected: set[tuple[str, str]] = set()
_compiling: set[tuple[str, str]] = set()


def begin(hosts: Iterable[str]) -> None:
    """Marks these hosts as working."""
    _at_work.update(hosts)


def end(host: str) -> None:
    """Marks a host as finished; no build is expected from it."""
    _at_work.discard(host)
    _compiling.difference_update([pair for pair in _compiling if pair[0] == host])


def expect(host: str, build: str) -> None:
    """Records that a host will compile a build."""
    _expected.add((host, build))


def finish(host: str, build: str) -> None:
    """Records that a host has compiled a build or failed to."""
    _expected.discard((host, build))
    _compiling.discard((host, build))


def expected(host: str, build: str) -> bool:
    """Whether a working host still has to compile a build."""
    return host in _at_work and (host, build) in _expected


def claim(host: str, build: str, rivals: Iterable[str]) -> str:
    """The host that compiles a build for these hosts: this one, unless one of the rivals was faster."""
    for rival in rivals:
        if (rival, build) in _compiling:
            return rival
    _compiling.add((host, build))
    return host
