"""Installs Debian packages, some at exact versions. Waits for apt's lock, and updates lists only if one is missing."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Any

from pyinfra import host
from pyinfra.api import operation
from pyinfra.facts.deb import DebPackages

from rigup.errors import HostFailed
from rigup.facts.probe import Probe
from rigup.host import Host
from rigup.operations.apt import commands
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.systemd.driver_files import SOURCE

STEP = "packages"


def debian_packages(packages: Iterable[str]) -> None:
    """Ensures that these packages are installed. A plain function, so that it also works within another operation."""
    wanted = sorted(packages)
    missing = sorted(set(wanted) - set(host.get_fact(DebPackages)))
    installed_packages(
        name=f"Debian packages {', '.join(missing)}" if missing else "Debian packages",
        packages=missing,
    )


def have_packages(host: Host, step: str, packages: Collection[str]) -> None:
    """Installs what is missing of these packages. For the function of a step, which may run beside other operations."""
    if missing := sorted(set(packages) - _installed(host, packages).keys()):
        commands.update(host, step)
        commands.install(host, step, missing)


def have_versions(host: Host, step: str, packages: Mapping[str, str]) -> None:
    """Installs the packages of NVIDIA's repository that do not have their versions.

    Raises HostFailed with the available versions if the host's sources lack one.
    """
    there = _installed(host, packages)
    missing = {name: version for name, version in packages.items() if there.get(name) != version}
    if missing:
        commands.update(host, step, SOURCE)
        commands.install_exactly(host, step, missing)


def _installed(host: Host, packages: Collection[str]) -> dict[str, str]:
    """The version, without the package's revision, of each of these packages that is installed."""
    query = ("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\\n", *packages)
    lines = [line.split() for line in remote.run(host, *query).stdout.splitlines()] if packages else []
    return {words[1]: commands.upstream(words[2]) for words in lines if len(words) == 3 and words[0] == "installed"}


@operation()
def installed_packages(packages: list[str]) -> Generator[Any, None, None]:
    """Installs these packages, after apt's lock is free and dpkg is in order.

    + packages: names of those that are not installed
    """
    if not packages:
        return
    yield step(_install, packages)


def _install(host: Host, packages: list[str]) -> None:
    with commands.turn(host):
        commands.wait_for_lock(host, STEP)
        commands.mend(host, STEP)
        try:
            commands.run(host, STEP, "apt-get", "-q", "update")
        except HostFailed:
            # A source that fails, such as Proxmox's enterprise one without a subscription, matters for its packages
            # only.
            if set(packages) - commands.versions(host, packages).keys():
                raise
        report(Progress(host.name, STEP, text=f"installing {', '.join(packages)}"))
        commands.install(host, STEP, packages)


@operation()
def pinned_packages(packages: Mapping[str, str], probe: Probe) -> Generator[Any, None, None]:
    """Ensures that these packages have these versions.

    + packages: version by name, without the package's revision
    + probe: the host's state when it was probed
    """
    there = {name: commands.upstream(version) for name, version in probe.nvidia.packages.items()}
    if all(there.get(name) == version for name, version in packages.items()):
        host.noop(f"{', '.join(packages)} are installed")
        return
    yield step(have_versions, "cuda", packages)
