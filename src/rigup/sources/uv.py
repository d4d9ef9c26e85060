"""uv on the controlling machine: pins a release, unpacks its program from the wheel, and runs it. Pins smg, too."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version

from rigup.artifacts import ARCHITECTURES, Architecture, LockedUv
from rigup.cache import cache_folder
from rigup.errors import HostFailed, InputError, MissingTool
from rigup.sources.downloads import fetch
from rigup.sources.package_index import IndexFile, index_url, pip_settings, project_files
from rigup.sources.wheel_tags import best_wheel, by_release, target_tags

TIMEOUT_S = 600
PATIENCE = ("UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES")


def pin_wheels(project: str, version: str | None, asked: str) -> tuple[str, dict[str, str]]:
    """A release of a program that is one wheel: its version, and sha256 by wheel, one for each architecture of hosts.

    version: by default the newest. asked: starts the messages. Raises InputError if the release does not exist, and
    Unreachable.
    """
    by_version = by_release(project_files(project, asked))
    if version is None:
        version = str(max((known for known in by_version if not known.is_prerelease), default=""))
    found: list[IndexFile] = []
    with suppress(InvalidVersion):
        found = by_version.get(Version(version), [])
    wheels = [wheel for a in ARCHITECTURES if (wheel := best_wheel(found, target_tags(a, "3.12"))) and wheel.sha256]
    if len(wheels) < len(ARCHITECTURES):
        newest = ", ".join(str(known) for known in sorted(by_version, reverse=True)[:5])
        message = f"{asked}: pip's package index has no {project} {version} for {' and '.join(ARCHITECTURES)}"
        raise InputError(message, f"choose from the newest: {newest}" if newest else "check that the index is complete")
    return version, {wheel.name: str(wheel.sha256) for wheel in wheels}


def uv_program(locked: LockedUv) -> Path:
    """The path of uv for this machine, unpacked from the locked release's wheel into the cache.

    If this machine's platform is not in the lock, rigup checks the wheel against the hash on the index. Raises
    MissingTool if the release is not built for this machine, Unreachable, and HostFailed if the sha256 is wrong.
    """
    pinned = [IndexFile(name, "", sha256) for name, sha256 in sorted(locked.files.items())]
    found = [file for file in pinned if parse_wheel_filename(file.name)[3] & set(sys_tags())]
    if not found:
        found = by_release(project_files("uv")).get(Version(locked.version), [])
        found = [file for file in found if parse_wheel_filename(file.name)[3] & set(sys_tags())]
    if not found or found[0].sha256 is None:
        machine = f"{platform.system()} on {platform.machine()}"
        raise MissingTool(
            f"uv {locked.version} is not built for {machine}", "run rigup lock --upgrade uv, or lock on another machine"
        )
    wheel, folder = found[0], cache_folder() / "sources"
    packed = fetch(lambda: wheel.url or url_of(wheel.name), wheel.name, str(wheel.sha256), folder / str(wheel.sha256))
    return _unpacked(packed, cache_folder() / "uv" / str(wheel.sha256) / "uv")


def url_of(wheel: str) -> str:
    """The URL of a wheel on pip's index. Raises InputError if the index does not have it, and Unreachable."""
    for file in project_files(wheel.partition("-")[0], wheel, yanked=True):
        if file.name == wheel:
            return file.url
    raise InputError(
        f"{wheel}: pip's package index does not have this file",
        "see which index pip uses: pip config get global.index-url",
    )


def run_uv(program: Path, words: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs uv with pip's index but without this machine's uv settings and without Python downloads.

    The index goes through the environment because its URL may contain a password.
    """
    own = ("UV_", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name in PATIENCE or not name.startswith(own)}
    certificates = pip_settings().get("cert")
    set_by_rigup = {
        "UV_DEFAULT_INDEX": index_url(),
        "UV_CACHE_DIR": str(cache_folder() / "uv-cache"),
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "NO_COLOR": "1",
        **({"SSL_CERT_FILE": certificates} if certificates else {}),
        **variables,
    }
    environment = kept | set_by_rigup
    return subprocess.run([str(program), *words], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)


def python_release(program: Path, version: str, architecture: Architecture) -> tuple[str, str]:
    """The newest Python release of a version ("3.12") that this uv provides for Linux: its number and archive URL.

    uv knows this without network access. Raises InputError if uv does not provide it.
    """
    key = f"cpython-{version}-linux-{architecture}-gnu"
    words = ["python", "list", "--only-downloads", "--all-versions", "--offline", "--output-format", "json", key]
    done = run_uv(program, words)
    listed = json.loads(done.stdout) if done.returncode == 0 and done.stdout else []
    if not listed:
        raise InputError(
            f"Python {version} for {architecture}: this uv version does not provide it", "run rigup lock --upgrade uv"
        )
    return str(listed[0]["version"]), str(listed[0]["url"])


def require_python(program: Path, mirror: Path, version: str, architecture: Architecture) -> None:
    """Has uv install a Python from a local folder laid out like its mirrors; uv checks the sha256.

    Raises HostFailed if uv rejects it.
    """
    with tempfile.TemporaryDirectory(dir=mirror, prefix=".checking-") as folder:
        words = ["python", "install", "--no-bin", "--mirror", mirror.absolute().as_uri(), "--install-dir", folder]
        done = run_uv(program, [*words, f"cpython-{version}-linux-{architecture}-gnu"], UV_PYTHON_DOWNLOADS="manual")
    if done.returncode:
        last_line = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "uv rejects it")
        problem = last_line.strip().removeprefix("cause: ")
        raise HostFailed(f"Python {version}: {problem}", "run the same command again; nothing was kept")


def interpreter() -> list[str]:
    """Arguments that make uv use this Python instead of searching for one; uv does not build with it."""
    return ["--python", sys.executable]


def _unpacked(wheel: Path, program: Path) -> Path:
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as packed:
        member = next((name for name in packed.namelist() if name.endswith(".data/scripts/uv")), None)
        if member is None:
            raise HostFailed(f"{wheel.name}: this wheel does not contain uv", "run rigup lock --upgrade uv")
        fresh = program.with_name(f"uv.{os.getpid()}")
        fresh.write_bytes(packed.read(member))
    fresh.chmod(0o755)
    fresh.replace(program)
    return program
