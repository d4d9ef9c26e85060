"""smg on a gateway's host: unpacked from its locked wheel, kept from other users, never with backends of the past.

A change stops it before HAProxy's, because its addresses of backends are HAProxy's; it answers what it has begun, and
HAProxy chooses by itself meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import gevent
from pyinfra import host
from pyinfra.api import FunctionCommand, operation
from pyinfra.facts.files import File

from rigup import layout
from rigup.artifacts import LockedSmg
from rigup.errors import HostFailed
from rigup.gateway.cache_aware import GRACE_SECONDS
from rigup.gateway.cache_unit import smg_folder
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
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.text_files import TextFiles
from rigup.operations.primitives.units import State, unit_states
from rigup.settings import PackageSource

STEP = "gateway"
READY_SECONDS = 30.0
LOG = f"on the host: journalctl -u {SMG_UNIT}"
# A folder that is there is whole: it gets its name last. Other releases go, since only one runs.
_UNPACK = (
    'rm -rf -- "$1"; mkdir -p -- "$1/.new"; python3 -m zipfile -e "$2" "$1/.new"; chmod -R u=rwX,go=rX -- "$1"; '
    'PYTHONDONTWRITEBYTECODE=1 python3 -I "$4" "$1/.new"; mv -T -- "$1/.new" "$3"'
)
_STOP = 'systemctl --quiet stop "$1" 2>/dev/null || true'
_REMOVE = (
    'systemctl --quiet disable --now "$1" "$2" 2>/dev/null || true; shift 2; rm -rf -- "$@"; systemctl daemon-reload'
)


@dataclass(frozen=True)
class SmgFiles:
    """The texts of both units: of smg, and of the one that closes its ports."""

    unit: str
    ports: str

    @property
    def by_path(self) -> dict[str, str]:
        """Both, as they are to lie on the host."""
        return {SMG_UNIT_FILE: self.unit, PORTS_UNIT_FILE: self.ports}


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
def smg_ready_for(files: SmgFiles) -> Generator[FunctionCommand, None, None]:
    """Ensures that no smg runs whose backends are other ones than those of HAProxy's next configuration.

    + files: both units
    """
    if host.get_fact(TextFiles, paths=tuple(files.by_path)) == _stripped(files) and _is_right(PORTS_UNIT):
        host.noop("its backends are up to date")
        return
    yield step(_prepare, files)


def _prepare(host: Host, files: SmgFiles) -> None:
    remote.script(host, _STOP, SMG_UNIT, timeout=GRACE_SECONDS + 60)
    remote.write_file(host, PORTS_UNIT_FILE, files.ports.rstrip("\n"))
    close = 'systemctl daemon-reload; systemctl --quiet enable "$1"; systemctl restart "$1"'
    remote.script(host, close, PORTS_UNIT, doing="closing smg's ports to other users")


@operation()
def running_smg(files: SmgFiles, port: int) -> Generator[FunctionCommand, None, None]:
    """Ensures that smg runs, and has found its backends.

    + files: both units
    + port: where it says that it is ready
    """
    if host.get_fact(TextFiles, paths=tuple(files.by_path)) == _stripped(files) and _is_right(SMG_UNIT):
        host.noop("smg is up to date")
        return
    yield step(_start, files, port)


def _start(host: Host, files: SmgFiles, port: int) -> None:
    # the unit's file is written last: until then, an interrupted change is repeated
    remote.write_file(host, SMG_UNIT_FILE, files.unit.rstrip("\n"))
    start = 'systemctl daemon-reload; systemctl reset-failed "$1" 2>/dev/null || true; systemctl restart "$1"'
    remote.script(host, start, SMG_UNIT, doing="starting smg", timeout=GRACE_SECONDS + 60)
    remote.check_output(host, "systemctl", "--quiet", "enable", SMG_UNIT)
    words = ("curl", "--silent", "--output", "/dev/null", "--max-time", "3", "--write-out", "%{http_code}")
    url = f"http://127.0.0.1:{port}/health"
    with gevent.Timeout(READY_SECONDS, HostFailed(f"{host.name}: smg does not answer {url}", LOG)):
        while remote.run(host, *words, url).stdout.strip() != "200":
            gevent.sleep(0.5)


def _stripped(files: SmgFiles) -> dict[str, str]:
    return {path: text.strip() for path, text in files.by_path.items()}


def _is_right(unit: str) -> bool:
    return unit_states(host, unit).get(unit, State()).is_right


@operation()
def no_smg() -> Generator[FunctionCommand, None, None]:
    """Ensures that no smg runs, and removes what rigup installed of it."""
    if not host.get_fact(TextFiles, paths=(SMG_UNIT_FILE, PORTS_UNIT_FILE)):
        host.noop("requests are not routed by prefix")
        return
    yield step(remove)


def remove(host: Host) -> None:
    """Stops smg once it has answered what it has begun, and removes its files, its units last."""
    words = (SMG_UNIT, PORTS_UNIT, SMG_FOLDER, SMG_UNIT_FILE, PORTS_UNIT_FILE)
    remote.script(host, _REMOVE, *words, doing="removing smg", timeout=GRACE_SECONDS + 60)
