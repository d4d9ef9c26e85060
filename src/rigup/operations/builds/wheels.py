"""Python wheels that the lock pins: from the controlling machine, sent to a host once, identified by sha256."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

from rigup import layout
from rigup.cache import cache_folder
from rigup.errors import HostFailed, InputError
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, counting, report
from rigup.plan import Build
from rigup.regular_files import sha256_of
from rigup.settings import PackageSource
from rigup.units import bytes_text

STORE = f"{layout.PACKAGES}/wheels"
PYTHONS = f"{layout.PACKAGES}/python"
STEP = "engine"
HASHING_SECONDS = 600
ROOM_TO_UNPACK = 1.05


def uv_wheel(build: Build) -> str:
    """The file name of uv's wheel for the build's architecture. Raises InputError if the lock has none."""
    for name in build.uv.files if build.uv else ():
        if build.architecture in name:
            return name
    raise InputError(f"rigup.lock: uv has no wheel for {build.architecture}", "run rigup lock")


def missing_in(wheelhouse: Path, build: Build) -> list[str]:
    """The wheels of a build, including uv for an environment, that a wheelhouse lacks."""
    names = [*build.environment.files, uv_wheel(build)] if build.environment else []
    names += [build.own_library.wheel] if build.own_library else []
    return sorted(name for name in names if not (wheelhouse / "wheels" / name).is_file())


def have_packages(host: Host, build: Build, source: PackageSource) -> str:
    """Sends uv's wheel to the host, and all other wheels if there is a wheelhouse; returns uv's path on the host."""
    assert build.uv is not None and build.environment is not None
    name = uv_wheel(build)
    hashes = {name: build.uv.files[name]}
    if source.wheelhouse:
        hashes |= build.environment.files
        files = {wheel: source.wheelhouse / "wheels" / wheel for wheel in hashes}
    else:
        progress = counting(host.name, STEP, "bytes", "fetching uv")
        files = {name: fetch_wheel(name, hashes[name], cache_folder() / "sources", progress)}
    missing = _missing(host, hashes)
    _check_room(host, build, list(files.values()), [files[wheel] for wheel in missing])
    _send(host, {wheel: files[wheel] for wheel in missing}, hashes)
    return f"{STORE}/{name}"


def have_wheel(host: Host, name: str, sha256: str, source: PackageSource) -> str:
    """Sends one locked wheel to the host, if it is not there; returns its path on the host."""
    path = wheel_here(name, sha256, source, host.name)
    if _missing(host, {name: sha256}):
        _send(host, {name: path}, {name: sha256})
    return f"{STORE}/{name}"


def wheel_here(name: str, sha256: str, source: PackageSource, host_name: str) -> Path:
    """One locked wheel on this machine: in the wheelhouse, or downloaded into the cache for a host."""
    if source.wheelhouse is None:
        progress = counting(host_name, STEP, "bytes", f"fetching {name.partition('-')[0]}")
        return fetch_wheel(name, sha256, cache_folder() / "sources", progress)
    path = source.wheelhouse / "wheels" / name
    if not path.is_file():
        raise HostFailed(f"{source.wheelhouse} lacks {name}", "run rigup lock --vendor again")
    return path


def fetch_wheel(
    name: str, sha256: str, cache: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> Path:
    """A wheel in this machine's cache, downloaded from pip's configured index. Raises like `downloads.fetch`."""
    from rigup.sources.downloads import fetch  # most runs fetch nothing
    from rigup.sources.uv import url_of

    return fetch(lambda: url_of(name), name, sha256, cache / sha256, progress)


def have_python(host: Host, build: Build, source: PackageSource) -> str | None:
    """Sends the Python that a wheelhouse has for a build; returns the mirror address for uv, None for uv's default.

    The lock has no sha256 for it: uv knows and checks the hash of every Python that it installs.
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
        if not remote.run(host, "test", "-f", there).ok:
            report(Progress(host.name, STEP, text=f"sending Python {build.environment.python}"))
            remote.make_folders(host, layout.CACHE, layout.PACKAGES, PYTHONS, there.rpartition("/")[0])
            remote.send_file(host, path, f"{there}.part")
            remote.script(host, 'chmod 644 "$1.part"; mv -fT "$1.part" "$1"', there)
    return f"file://{PYTHONS}"


def _check_room(host: Host, build: Build, files: list[Path], missing: list[Path]) -> None:
    """Raises HostFailed with both sizes if the environment does not fit, before anything is sent."""
    needed = ROOM_TO_UNPACK * sum(_unpacked(path) for path in files) + sum(path.stat().st_size for path in missing)
    free = remote.free_bytes(host, layout.BUILDS)
    if needed > free:
        what = f"the environment of {build.engine} {build.version} needs {bytes_text(needed)}"
        raise HostFailed(
            f"{host.name}: {what} in {layout.BUILDS}, only {bytes_text(free)} free",
            "free disk space (rigup prune), or mount a larger disk there",
        )


def _unpacked(wheel: Path) -> int:
    try:
        with zipfile.ZipFile(wheel) as packed:
            return sum(member.file_size for member in packed.infolist())
    except zipfile.BadZipFile:
        return 0  # the check of its hash reports this


def _missing(host: Host, hashes: dict[str, str]) -> list[str]:
    """The files that the host lacks, or has with a different hash."""
    ask = '[ -d "$1" ] || exit 0; cd "$1"; shift; for f in "$@"; do [ ! -f "$f" ] || sha256sum "$f"; done'
    listed = remote.script(host, ask, STORE, *hashes, doing=f"hashing files in {STORE}", timeout=HASHING_SECONDS)
    there = {name: sha256 for sha256, _, name in (line.partition("  ") for line in listed.splitlines())}
    return [name for name, sha256 in hashes.items() if there.get(name) != sha256]


def _send(host: Host, files: dict[str, Path], hashes: dict[str, str]) -> None:
    """Sends files, and verifies each before and after the transfer."""
    for name, path in files.items():
        _check(name, path, hashes[name])
    remote.make_folders(host, layout.CACHE, layout.PACKAGES, STORE)
    total, done = sum(path.stat().st_size for path in files.values()), 0
    for name, path in files.items():
        report(Progress(host.name, STEP, done, total, "bytes", "sending wheels"))
        _send_one(host, name, path, hashes[name])
        done += path.stat().st_size


def _check(name: str, path: Path, sha256: str) -> None:
    found = sha256_of(path)
    if found != sha256:
        raise HostFailed(
            f"{name}: sha256 is {found}, not the locked {sha256}",
            f"replace {name} in {path.parent} with the locked file; nothing was sent",
        )


def _send_one(host: Host, name: str, path: Path, sha256: str) -> None:
    part = f"{STORE}/{name}.part"
    remote.send_file(host, path, part)
    finish = 'echo "$3  $1" | sha256sum --check --status; chmod 644 "$1"; chown root:root "$1"; mv -fT "$1" "$2"'
    if not remote.run(host, "sh", "-ec", finish, "rigup", part, f"{STORE}/{name}", sha256, timeout=HASHING_SECONDS).ok:
        remote.run(host, "rm", "-f", part)
        raise HostFailed(f"{host.name}: {name} was damaged in transfer", "run the same command again")
