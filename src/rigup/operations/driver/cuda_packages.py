"""The CUDA toolkit's packages at the locked versions: to compile a build, and to run the result."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from pyinfra import host
from pyinfra.api import FunctionCommand, operation

from rigup.facts.probe import Probe
from rigup.host import Host
from rigup.operations.apt import commands
from rigup.operations.apt.commands import upstream
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.systemd.driver_files import SOURCE


@operation()
def pinned_packages(packages: Mapping[str, str], probe: Probe) -> Generator[FunctionCommand, None, None]:
    """Ensures that these packages have these versions.

    + packages: version by name, without the package's revision
    + probe: the host's state when it was probed
    """
    there = {name: upstream(version) for name, version in probe.nvidia.packages.items()}
    if all(there.get(name) == version for name, version in packages.items()):
        host.noop(f"{', '.join(packages)} are installed")
        return
    yield step(have, "cuda", packages)


def have(host: Host, step: str, packages: Mapping[str, str]) -> None:
    """Installs the packages that do not have their versions.

    Raises HostFailed with the available versions if the host's sources lack one.
    """
    query = ("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\\n", *packages)
    lines = remote.run(host, *query).stdout.splitlines() if packages else []
    there = {words[1]: upstream(words[2]) for line in lines if (words := line.split())[0] == "installed"}
    missing = {name: version for name, version in packages.items() if there.get(name) != version}
    if not missing:
        return
    commands.update(host, step, SOURCE)
    exact = commands.exact(host.name, missing, commands.versions(host, missing))
    report(Progress(host.name, step, text=f"installing {', '.join(missing)}"))
    commands.install(host, step, exact)
