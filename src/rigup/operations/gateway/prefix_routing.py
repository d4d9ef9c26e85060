"""smg on a gateway's host: unpacked from its locked wheel, kept from other users, never with backends of the past.

A change stops it before HAProxy's, because its addresses of backends are HAProxy's; it answers what it has begun, and
HAProxy chooses by itself meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from pyinfra import host
from pyinfra.api import FunctionCommand, operation
from pyinfra.facts.files import File

from rigup import layout
from rigup.artifacts import LockedSmg
from rigup.errors import HostFailed
from rigup.gateway.cache_aware import GRACE_SECONDS, smg_folder
from rigup.gateway.paths import (
    CACHE_PROGRAM,
    PORTS_UNIT,
    PORTS_UNIT_FILE,
    SMG_FOLDER,
    SMG_UNIT,
    SMG_UNIT_FILE,
)
from rigup.host import Host
from rigup.operations.builds.wheels import have_wheel
from rigup.operations.gateway.http_status import await_ok
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.removal import InstalledPart
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.text_files import changed_texts
from rigup.operations.primitives.units import unit_state
from rigup.settings import PackageSource

STEP = "gateway"
READY_SECONDS = 30.0
LOG = f"on the host: journalctl -u {SMG_UNIT}"
PREFIX_ROUTING = InstalledPart(
    traces=(SMG_UNIT_FILE, PORTS_UNIT_FILE),
    units=(SMG_UNIT, PORTS_UNIT),
    paths=(SMG_FOLDER, SMG_UNIT_FILE, PORTS_UNIT_FILE),
    doing="removing smg",
    absent="requests are not routed by prefix",
    stop_seconds=GRACE_SECONDS + 60,
)
# A folder that is there is whole: it gets its name last. Other releases go, since only one runs.
_UNPACK = (
    'rm -rf -- "$1"; mkdir -p -- "$1/.new"; python3 -m zipfile -e "$2" "$1/.new"; chmod -R u=rwX,go=rX -- "$1"; '
    'PYTHONDONTWRITEBYTECODE=1 python3 -I "$4" "$1/.new"; mv -T -- "$1/.new" "$3"'
)
_STOP = 'systemctl --quiet stop "$1" 2>/dev/null || true'


@operation()
def installed_smg(
    locked: LockedSmg, architecture: str, source: PackageSource
) -> Generator[FunctionCommand, None, None]:
    """Ensures that the locked release of smg is unpacked.

    + locked: the release
    + architecture: of the host
    + source: where wheels come from
    """
    if host.get_fact(File, path=f"{smg_folder(locked)}/smg/__init__.py"):
        host.noop(f"smg {locked.version} is installed")
        return
    yield step(_install, locked, architecture, source)


def _install(host: Host, locked: LockedSmg, architecture: str, source: PackageSource) -> None:
    wheel = locked.wheel(architecture)
    if wheel is None:
        raise HostFailed(f"{host.name}: rigup.lock has no smg for {architecture}", "run rigup lock --upgrade smg")
    report(Progress(host.name, STEP, text="installing smg"))
    path = have_wheel(host, wheel, locked.files[wheel], source)
    remote.script(host, _STOP, SMG_UNIT, timeout=GRACE_SECONDS + 60)
    words = (SMG_FOLDER, path, smg_folder(locked), f"{layout.PROGRAMS}/{CACHE_PROGRAM}")
    remote.script(host, _UNPACK, *words, doing=f"unpacking {wheel}", timeout=300)


@operation()
def smg_ready_for(units: Mapping[str, str]) -> Generator[FunctionCommand, None, None]:
    """Ensures that no smg runs whose backends are other ones than those of HAProxy's next configuration.

    + units: the texts of both units, by path
    """
    if not changed_texts(host, units) and unit_state(host, PORTS_UNIT).is_right:
        host.noop("its backends are up to date")
        return
    yield step(_prepare, units)


def _prepare(host: Host, units: Mapping[str, str]) -> None:
    remote.script(host, _STOP, SMG_UNIT, timeout=GRACE_SECONDS + 60)
    remote.write_file(host, PORTS_UNIT_FILE, units[PORTS_UNIT_FILE])
    close = 'systemctl daemon-reload; systemctl --quiet enable "$1"; systemctl restart "$1"'
    remote.script(host, close, PORTS_UNIT, doing="closing smg's ports to other users")


@operation()
def running_smg(units: Mapping[str, str], port: int) -> Generator[FunctionCommand, None, None]:
    """Ensures that smg runs, and has found its backends.

    + units: the texts of both units, by path
    + port: where it says that it is ready
    """
    if not changed_texts(host, units) and unit_state(host, SMG_UNIT).is_right:
        host.noop("smg is up to date")
        return
    yield step(_start, units, port)


def _start(host: Host, units: Mapping[str, str], port: int) -> None:
    # the unit's file is written last: until then, an interrupted change is repeated
    remote.write_file(host, SMG_UNIT_FILE, units[SMG_UNIT_FILE])
    start = 'systemctl daemon-reload; systemctl reset-failed "$1" 2>/dev/null || true; systemctl restart "$1"'
    remote.script(host, start, SMG_UNIT, doing="starting smg", timeout=GRACE_SECONDS + 60)
    remote.check_output(host, "systemctl", "--quiet", "enable", SMG_UNIT)
    url = f"http://127.0.0.1:{port}/health"
    await_ok(host, url, READY_SECONDS, HostFailed(f"{host.name}: smg does not answer {url}", LOG))
