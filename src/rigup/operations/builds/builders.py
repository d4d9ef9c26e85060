"""What builders compile for other hosts: recorded on the controlling machine, awaited and received by the others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import gevent

from rigup import layout
from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.builds import builders_at_work
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.plan import Build
from rigup.settings import CONTROLLER, Builder

if TYPE_CHECKING:
    from rigup.operations.builds.records import BuildRecord

SEND_SECONDS = 600
WAIT_SECONDS = 0.5

_PACK = 'builds=$1; packed=$2; shift 2; rm -f "$packed"; tar -C "$builds" -czf "$packed" -- "$@"; chmod 644 "$packed"'
_UNPACK = """
rm -rf "$1"; mkdir -m 755 "$1"
tar -C "$1" -xzf "$2" --no-same-owner --no-same-permissions; rm -f "$2"
chmod -R u=rwX,go=rX "$1"; cd "$1/$3"; sha256sum --check --strict --quiet
"""


def names_of(builders: tuple[Builder, ...]) -> str:
    """The builders' names, as messages have them."""
    return " or ".join(builder.name for builder in builders)


def kernel_builders(build: Build, builders: tuple[Builder, ...]) -> tuple[Builder, ...]:
    """The builders that compile the GPU kernels of an environment for other hosts; () for a build without any.

    The controlling machine does not: it has no such environment.
    """
    if build.own_compiler is None or not build.own_compiler.kernels:
        return ()
    return tuple(builder for builder in builders if builder.name != CONTROLLER)


def record(host: Host, builders: tuple[Builder, ...], name: str, *parts: str) -> None:
    """Downloads for other hosts what a host has compiled, if it is one of these builders.

    parts: of the build's folder, with its manifest; none for all of it. A failure is reported but not fatal.
    """
    for builder in builders:
        if builder.name == host.name:
            _record(host, builder, name, *parts)


def _record(host: Host, builder: Builder, name: str, *parts: str) -> None:
    from rigup.operations.builds.records import ReceivedArchive, keep_archive  # few fleets have builders

    report(Progress(host.name, "engine", text="storing the build for other hosts"))
    packed = _packed(name)
    part = builder.folder / f".{name}.{os.getpid()}.part"
    paths = [f"{name}/{path}" for path in parts] or [name]
    try:
        builder.folder.mkdir(parents=True, exist_ok=True)
        remote.script(host, _PACK, layout.BUILDS, packed, *paths, doing=f"packing {name}", timeout=SEND_SECONDS)
        with ReceivedArchive(part, "wb") as file:
            if not host.get_file(packed, file):
                raise HostFailed(f"{host.name}: {packed} could not be read")
        keep_archive(builder, name, part)
    except (HostFailed, *remote.CONNECTION_ERRORS) as error:
        report(Progress(host.name, "engine", text=f"could not store the build: {error}"))
    finally:
        part.unlink(missing_ok=True)
        remote.run(host, "rm", "-f", packed)


def awaited(host: Host, builders: tuple[Builder, ...], name: str, what: str = "") -> tuple[Builder, BuildRecord] | None:
    """Waits for a builder and returns its record of a build; None if this host is to compile it.

    Of hosts that are builders, the first that comes here compiles. what: of the build is waited for, if not all of it.
    """
    from rigup.operations.builds.records import read_record

    others = {builder.name for builder in builders} - {host.name}
    while True:
        for builder in builders:
            if found := read_record(builder, name):
                return builder, found
        if len(others) < len(builders):
            waiting_for = {builders_at_work.claim(host.name, name, others)} - {host.name}
        else:
            waiting_for = {other for other in others if builders_at_work.expected(other, name)}
        if not waiting_for:
            return None
        text = " or ".join(sorted(waiting_for))
        jobs.check_cancelled(f"{host.name}: engine: cancelled while {text} was building {what}{name}")
        report(Progress(host.name, "engine", text=f"waiting for {text}, which is building {what}{name}"))
        gevent.sleep(WAIT_SECONDS)


def unpacked_folder(name: str) -> str:
    """Where a host unpacks what it receives of a build."""
    return f"{layout.BUILDS}/.unpacked-{name}"


def _packed(name: str) -> str:
    return f"{layout.BUILDS}/.packed-{name}.tar.gz"


def receive(host: Host, builder: Builder, found: BuildRecord) -> None:
    """Sends an archive, and verifies every file against the record. Raises HostFailed if it arrived damaged."""
    name = found.build
    packed = _packed(name)
    remote.send_file(host, builder.archive(name), packed)
    words = (unpacked_folder(name), packed, name)
    remote.script(host, _UNPACK, *words, doing=f"unpacking {name}", stdin=found.sums, timeout=SEND_SECONDS)


def forget(host: Host, name: str) -> None:
    """Removes what a host has received of a build."""
    remote.run(host, "rm", "-rf", unpacked_folder(name), _packed(name))
