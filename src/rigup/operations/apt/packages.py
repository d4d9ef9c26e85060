"""Installs Debian packages; updates package lists only if something is missing, and waits for apt's lock."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from typing import Any

from pyinfra import host
from pyinfra.api import operation
from pyinfra.facts.deb import DebPackages

from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.apt import commands
from rigup.operations.apt.room import require_room
from rigup.operations.primitives import remote
from rigup.operations.primitives.steps import step

STEP = "packages"
LOCK_PATIENCE_SECONDS = 300
TIMEOUT_SECONDS = 1800


def debian_packages(packages: Iterable[str]) -> None:
    """Ensures that these packages are installed. A plain function, so that it also works within another operation."""
    wanted = sorted(packages)
    missing = sorted(set(wanted) - set(host.get_fact(DebPackages)))
    installed_packages(
        name=f"Debian packages {', '.join(missing)}" if missing else "Debian packages",
        packages=missing,
        _timeout=TIMEOUT_SECONDS,
        _env=commands.NEVER_ASK,
    )


def have_packages(host: Host, step: str, packages: Collection[str]) -> None:
    """Installs what is missing of these packages. For the function of a step, which may run beside other operations."""
    listed = remote.run(host, "dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\\n", *packages).stdout
    there = {name for state, _, name in (line.partition(" ") for line in listed.splitlines()) if state == "installed"}
    if missing := sorted(set(packages) - there):
        commands.update(host, step)
        commands.install(host, step, missing)


@operation()
def installed_packages(packages: list[str]) -> Generator[Any, None, None]:
    """Installs these packages, after apt's lock is free and dpkg is in order.

    + packages: names of those that are not installed
    """
    if not packages:
        return
    from pyinfra.operations import apt  # takes 25 ms, which a host without anything to install should not wait for

    with commands.turn(host):
        yield step(_ready, packages)
        yield from apt.packages._inner(
            packages=packages,
            no_recommends=True,
            # apt itself waits if another process takes the lock after our check
            extra_install_args=f"-o DPkg::Lock::Timeout={LOCK_PATIENCE_SECONDS}",
        )


def _ready(host: Host, packages: list[str]) -> None:
    commands.wait_for_lock(host, STEP)
    commands.mend(host, STEP)
    try:
        commands.run(host, STEP, "apt-get", "-q", "update")
    except HostFailed:
        # A source that fails, such as Proxmox's enterprise one without a subscription, matters for its packages only.
        if set(packages) - commands.versions(host, packages).keys():
            raise
    require_room(host, STEP, ("--no-install-recommends", "install", *packages))
