"""An engine build on a host, from source: compiled once per fleet, immutable, under its name only once it was checked.

The name holds a hash of everything that the binary depends on, so equal hosts share one archive in the controlling
machine's cache, and a host that has the folder has exactly that build.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from gevent.lock import RLock
from pyinfra import host
from pyinfra.api import FunctionCommand, operation
from pyinfra.facts.files import File

from rigup import layout
from rigup.cache import cache_folder
from rigup.errors import HostFailed
from rigup.lock import LockedSource
from rigup.operations import cuda_packages, jobs, remote
from rigup.operations.packages import debian_packages
from rigup.operations.progress import Progress, report
from rigup.operations.sources import fetch_source
from rigup.operations.steps import step
from rigup.operations.uploads import send_file
from rigup.plan import Build

# an environment of gigabytes is written back to a slow disk meanwhile
PUBLISH_SECONDS = 1200

_ONE_AT_A_TIME: dict[str, RLock] = {}


def name_of(build: Build, architecture: str, os_release: str) -> str:
    """`llama.cpp-b11434-3f2a...`: engine, version and a hash of all that the build depends on."""
    depends = [
        build.engine,
        build.version,
        build.sha256,
        build.root,
        build.flags,
        build.targets,
        architecture,
        os_release,
        *([build.pinned_packages] if build.pinned_packages else []),
        *([build.image.reference] if build.image else []),
        *([_contents(build)] if build.environment else []),
    ]
    return f"{build.engine}-{build.version}-{hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:12]}"


def _contents(build: Build) -> dict[str, Any]:
    """What an installed environment is made of: not where the files come from, nor which uv unpacks them."""
    assert build.environment is not None
    contents = build.environment.model_dump(mode="json", include={"variant", "python", "python_from", "files"})
    return contents | {"provides": build.provides}


@operation(_set_in_op=False)  # the packages that a compile needs are an operation inside this one
def source_build(
    build: Build, build_name: str, check: tuple[str, ...], expect: str
) -> Generator[FunctionCommand, None, None]:
    """Have a build from source in its own folder under the builds root.

    + build: the plan's build
    + build_name: from `name_of`
    + check: argv, relative to the folder, that proves that it runs
    + expect: what the answer of `check` must hold
    """
    if host.get_fact(File, path=f"{layout.BUILDS}/{build_name}/manifest.json"):
        host.noop(f"build {build_name} is there")
        return
    yield step(_provide, build, build_name, check, expect)


def _provide(host: Any, build: Build, name: str, check: tuple[str, ...], expect: str) -> None:
    """Pushes the cached archive, or builds on this host and fills the cache. Hosts that want the same build wait."""
    lock = _ONE_AT_A_TIME.setdefault(name, RLock())
    if not lock.acquire(blocking=False):
        report(Progress(host.name, "engine", text=f"waiting for {name}, which another host is building"))
        lock.acquire()
    try:
        cached = cache_folder() / "builds" / f"{name}.tar.gz"
        if not _push(host, cached, name, check, expect):
            _compile(host, build, name, check, expect)
            _pull(host, cached, name)
    finally:
        lock.release()


def _compile(host: Any, build: Build, name: str, check: tuple[str, ...], expect: str) -> None:
    if build.address is None or build.sha256 is None:
        raise HostFailed(
            f"{host.name}: {build.engine} {build.version}: no source archive in the lock", "run: rigup lock"
        )
    work, result = f"{layout.BUILDS}/.work-{name}", f"{layout.BUILDS}/.result-{name}"
    command = ("python3", f"{layout.PROGRAMS}/build_source.py", f"{work}/job.json")
    compiling = jobs.Job(
        layout.job_unit("build", name), "engine", command, (work, result), "steps", private_network=True
    )
    running = jobs.going(host, compiling)
    unfinished = remote.ask(host, "test", "-f", f"{result}/manifest.json").ok
    if not unfinished and not running:
        _send_source(host, build, work)
    job = {
        "archive": f"{work}/source.archive",
        "sha256": build.sha256,
        "root": build.root,
        "flags": build.flags,
        "targets": build.targets,
        "work": f"{work}/tree",
        "result": result,
        "check": check,
        "expect": expect,
        "manifest": {"name": name, "build": build.model_dump(mode="json")},
    }
    if not unfinished:
        debian_packages(build.packages)
        cuda_packages.have(host, "engine", build.pinned_packages)
        if not running:
            remote.write_file(host, f"{work}/job.json", json.dumps(job))
        jobs.run(host, compiling)
    publish(host, name, work, result)


def _send_source(host: Any, build: Build, work: str) -> None:
    def progress(done: int, total: int) -> None:
        report(Progress(host.name, "engine", done, total, "bytes", "fetching the source archive"))

    assert build.address is not None and build.sha256 is not None
    source = LockedSource(
        engine=build.engine, version=build.version, address=build.address, sha256=build.sha256, root=build.root
    )
    with _ONE_AT_A_TIME.setdefault(build.sha256, RLock()):
        archive = fetch_source(source, cache_folder() / "sources", progress)
    user = layout.WORKER_USER
    result = work.replace(".work-", ".result-")
    make = (
        'rm -rf "$1" "$2"; install -d -m 755 "$1" "$2"; install -d -m 755 -o "$3" -g "$3" "$1/tree"; chown "$3:$3" "$2"'
    )
    remote.script(host, make, work, result, user, doing=f"making {work}")
    report(Progress(host.name, "engine", text="sending the source archive"))
    send_file(host, archive, f"{work}/source.archive")


def publish(host: Any, name: str, work: str, result: str) -> None:
    """Gives the finished folder to root, makes it read-only in effect, and renames it: from here on it is immutable."""
    if not remote.ask(host, "test", "-f", f"{result}/manifest.json").ok:
        raise HostFailed(f"{host.name}: build {name} ended without a result", "run rigup apply again to build it anew")
    put = 'chown -R root:root "$1"; chmod -R u=rwX,go=rX "$1"; sync -f "$1"; mv -T "$1" "$2"; rm -rf "$3"'
    words, doing = (result, f"{layout.BUILDS}/{name}", work), f"putting build {name} in place"
    remote.script(host, put, *words, doing=doing, timeout=PUBLISH_SECONDS)


def _pull(host: Any, cached: Path, name: str) -> None:
    """Brings the build home, so that the next equal host need not compile. A failure here costs only that."""
    report(Progress(host.name, "engine", text="keeping the build for other hosts"))
    packed = f"{layout.BUILDS}/.packed-{name}.tar.gz"
    cached.parent.mkdir(parents=True, exist_ok=True)
    part = cached.with_suffix(f".{os.getpid()}.part")
    try:
        pack = 'tar -C "$1" -czf "$2" "$3"; chmod 644 "$2"; sha256sum "$2" | cut -d" " -f1'
        sha256 = remote.script(host, pack, layout.BUILDS, packed, name, doing=f"packing {name}", timeout=600).strip()
        if host.get_file(packed, str(part)) and _sha256(part) == sha256:
            part.rename(cached)
            cached.with_suffix(".sha256").write_text(sha256 + "\n")
    except (HostFailed, *remote.LOST) as error:
        report(Progress(host.name, "engine", text=f"could not keep the build: {error}"))
    finally:
        part.unlink(missing_ok=True)
        remote.ask(host, "rm", "-f", packed)


def _push(host: Any, cached: Path, name: str, check: tuple[str, ...], expect: str) -> bool:
    """Puts the cached build onto the host; False when the cache has none, or what it has is damaged or does not run."""
    digest = cached.with_suffix(".sha256")
    if not cached.exists() or not digest.exists() or _sha256(cached) != digest.read_text().strip():
        return False
    report(Progress(host.name, "engine", text="sending the build from this machine's cache"))
    packed, unpacked = f"{layout.BUILDS}/.packed-{name}.tar.gz", f"{layout.BUILDS}/.unpacked-{name}"
    send_file(host, cached, packed)
    unpack = 'rm -rf "$1"; mkdir -p "$1"; tar -C "$1" -xzf "$2" --no-same-owner; rm -f "$2"; "$1/$3/$4" "$5"'
    said = remote.ask(
        host, "sh", "-c", "set -eu\n" + unpack + " 2>&1", "rigup", unpacked, packed, name, *check, timeout=300
    )
    if not said.ok or expect not in said.stdout:
        remote.ask(host, "rm", "-rf", unpacked, packed)
        return False
    publish = 'sync -f "$1"; mv -T "$1/$2" "$3"; rmdir "$1"; rm -rf "$4"'
    words = (unpacked, name, f"{layout.BUILDS}/{name}", f"{layout.BUILDS}/.work-{name}")
    remote.script(host, publish, *words, doing=f"putting build {name} in place")
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
