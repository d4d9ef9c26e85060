"""Python wheels that the lock pins: found on the controlling machine, sent to a host once, known by their sha256."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigup import layout
from rigup.cache import cache_folder
from rigup.errors import HostFailed, InputError
from rigup.operations import remote
from rigup.operations.downloads import fetch
from rigup.operations.progress import Progress, report
from rigup.operations.uploads import send_file
from rigup.plan import Build
from rigup.units import bytes_text

STORE = f"{layout.PACKAGES}/wheels"
PYTHONS = f"{layout.PACKAGES}/python"
STEP = "engine"
HASHING_SECONDS = 600
ROOM_TO_UNPACK = 1.05


@dataclass(frozen=True)
class PackageSource:
    """Where a host gets Python packages from.

    index: a simple index that the host itself asks; None is uv's default, the public one. python_mirror: where uv gets
    Python from, as its UV_PYTHON_INSTALL_MIRROR. wheelhouse: a folder of this machine whose `wheels` are sent instead,
    and whose `python`, if it has one, holds Python as such a mirror does.
    """

    index: str | None = None
    python_mirror: str | None = None
    wheelhouse: Path | None = None


def uv_wheel(build: Build) -> str:
    """The file name of uv's wheel for the build's architecture. Raises InputError where the lock has none."""
    for name in build.uv.files if build.uv else ():
        if build.architecture in name:
            return name
    raise InputError(f"rigup.lock: uv: no wheel for {build.architecture}", "run: rigup lock")


def missing_in(wheelhouse: Path, build: Build) -> list[str]:
    """The files of an environment, uv's among them, that a wheelhouse lacks."""
    assert build.environment is not None
    names = [*build.environment.files, uv_wheel(build)]
    return sorted(name for name in names if not (wheelhouse / "wheels" / name).is_file())


def have_packages(host: Any, build: Build, source: PackageSource) -> str:
    """Puts uv's wheel onto the host, and all others of a wheelhouse, where there is room; returns uv's path there."""
    assert build.uv is not None and build.environment is not None
    name = uv_wheel(build)
    hashes = {name: build.uv.files[name]}
    if source.wheelhouse:
        hashes |= build.environment.files
        files = {wheel: source.wheelhouse / "wheels" / wheel for wheel in hashes}
    else:

        def progress(done: int, total: int) -> None:
            report(Progress(host.name, STEP, done, total, "bytes", "fetching uv"))

        files = {name: fetch_wheel(name, hashes[name], cache_folder() / "sources", progress)}
    missing = _missing(host, hashes)
    _check_room(host, build, list(files.values()), [files[wheel] for wheel in missing])
    _send(host, {wheel: files[wheel] for wheel in missing}, hashes)
    return f"{STORE}/{name}"


def fetch_wheel(
    name: str, sha256: str, cache: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> Path:
    """A wheel in a cache of this machine, from the index that pip is set up for here. Raises as `downloads.fetch`."""
    from rigup.operations.uv import url_of  # few runs fetch anything

    return fetch(lambda: url_of(name), name, sha256, cache / sha256, progress)


def have_python(host: Any, build: Build, source: PackageSource) -> str | None:
    """Sends the Python that a wheelhouse has for a build; returns the address that uv gets Python from, if it is told.

    The lock has no sha256 of it: uv knows the one of every Python that it installs, and checks it.
    """
    assert build.environment is not None
    if build.environment.python_from != "uv" or source.wheelhouse is None:
        return source.python_mirror
    mirror = source.wheelhouse / "python"
    pattern = f"*/cpython-{build.environment.python}+*-{build.architecture}-unknown-linux-gnu-*"
    found = sorted(mirror.glob(pattern))
    if not found:
        return source.python_mirror
    for path in found:
        there = f"{PYTHONS}/{path.relative_to(mirror)}"
        if not remote.ask(host, "test", "-f", there).ok:
            report(Progress(host.name, STEP, text=f"sending Python {build.environment.python}"))
            remote.tell(host, "install", "-d", "-m", "755", layout.PACKAGES, PYTHONS, there.rpartition("/")[0])
            send_file(host, path, f"{there}.part")
            remote.script(host, 'chmod 644 "$1.part"; mv -f "$1.part" "$1"', there)
    return f"file://{PYTHONS}"


def _check_room(host: Any, build: Build, files: list[Path], missing: list[Path]) -> None:
    """Raises HostFailed with both sizes where the environment would not fit, before anything is sent."""
    needed = ROOM_TO_UNPACK * sum(_unpacked(path) for path in files) + sum(path.stat().st_size for path in missing)
    free = int(remote.tell(host, "df", "--output=avail", "-B1", layout.BUILDS).split()[-1])
    if needed > free:
        what = f"the environment of {build.engine} {build.version} needs {bytes_text(needed)}"
        raise HostFailed(
            f"{host.name}: {what} in {layout.BUILDS}, {bytes_text(free)} are free",
            "make room (rigup prune), or mount a larger disk there",
        )


def _unpacked(wheel: Path) -> int:
    try:
        with zipfile.ZipFile(wheel) as packed:
            return sum(member.file_size for member in packed.infolist())
    except zipfile.BadZipFile:
        return 0  # its hash will be wrong, and that is what has to be said


def _missing(host: Any, hashes: dict[str, str]) -> list[str]:
    """The files that the host lacks, or has with other content."""
    ask = '[ -d "$1" ] || exit 0; cd "$1"; shift; for f in "$@"; do [ ! -f "$f" ] || sha256sum "$f"; done'
    listed = remote.script(host, ask, STORE, *hashes, doing=f"hashing what is in {STORE}", timeout=HASHING_SECONDS)
    there = {name: sha256 for sha256, name in (line.split(maxsplit=1) for line in listed.splitlines())}
    return [name for name, sha256 in hashes.items() if there.get(name) != sha256]


def _send(host: Any, files: dict[str, Path], hashes: dict[str, str]) -> None:
    """Sends files, each of them the pinned one when it leaves and when it is there."""
    for name, path in files.items():
        _check(name, path, hashes[name])
    remote.tell(host, "install", "-d", "-m", "755", layout.PACKAGES, STORE)
    total, done = sum(path.stat().st_size for path in files.values()), 0
    for name, path in files.items():
        report(Progress(host.name, STEP, done, total, "bytes", "sending wheels"))
        _send_one(host, name, path, hashes[name])
        done += path.stat().st_size


def _check(name: str, path: Path, sha256: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise HostFailed(
            f"{name}: sha256 is {found}, the lock says {sha256}",
            f"{path.parent} holds another file under that name; nothing was sent",
        )


def _send_one(host: Any, name: str, path: Path, sha256: str) -> None:
    part = f"{STORE}/{name}.part"
    send_file(host, path, part)
    settle = 'echo "$3  $1" | sha256sum --check --status; chmod 644 "$1"; chown root:root "$1"; mv -f "$1" "$2"'
    if not remote.ask(host, "sh", "-ec", settle, "rigup", part, f"{STORE}/{name}", sha256, timeout=HASHING_SECONDS).ok:
        remote.ask(host, "rm", "-f", part)
        raise HostFailed(f"{host.name}: {name} did not arrive as it was sent", "run the same command again")
