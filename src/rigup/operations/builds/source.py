"""An engine build from source on a host: immutable, and published under its name only after a check.

The name contains a hash of everything that the binary depends on, so a folder of this name is this build. The host
compiles it, or gets it from the builder that the inventory names (builders.py).
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gevent.lock import RLock
from pyinfra import host
from pyinfra.api import FunctionCommand, operation
from pyinfra.facts.files import File

from rigup import layout
from rigup.cache import cache_folder
from rigup.errors import HostFailed
from rigup.host import Host
from rigup.lock import LockedSource
from rigup.operations.apt.packages import debian_packages, have_versions
from rigup.operations.builds import builders_at_work
from rigup.operations.builds.builders import awaited, forget, names_of, receive, record, unpacked_folder
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, counting, report
from rigup.operations.primitives.steps import step
from rigup.plan import Build
from rigup.programs.judge.llama_cpp import sources as judge_sources
from rigup.settings import CONTROLLER, Builder, PackageSource

if TYPE_CHECKING:
    from rigup.operations.builds.records import BuildRecord

# syncing an environment of several gigabytes to a slow disk takes long
PUBLISH_SECONDS = 1200

Check = tuple[tuple[str, ...], str]
"""argv of a command, relative to a build's folder, and the text that its output must contain."""

_FETCHING: dict[str, RLock] = {}


def name_of(build: Build, architecture: str, os_release: str) -> str:
    """`llama.cpp-b11434-3f2a...`: engine, version and a hash of everything that the build depends on."""
    depends = [
        build.engine,
        build.version,
        build.sha256,
        build.root,
        build.flags,
        build.targets,
        architecture,
        os_release,
        *([build.cmake] if build.cmake else []),
        *([build.pinned_packages] if build.pinned_packages else []),
        *([build.image.reference] if build.image else []),
        *([_contents(build)] if build.environment else []),
        *([build.own_library.model_dump(exclude={"source", "flags"})] if build.own_library else []),
        *([build.own_compiler.model_dump(exclude={"source", "kernels_of", "seconds"})] if build.own_compiler else []),
    ]
    return f"{build.engine}-{build.version}-{hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:12]}"


def _contents(build: Build) -> dict[str, Any]:
    """The parts of an installed environment, without the origin of its files or the version of uv."""
    assert build.environment is not None
    contents = build.environment.model_dump(mode="json", include={"variant", "python", "python_from", "files"})
    return contents | {"provides": build.provides}


@operation(_set_in_op=False)  # it runs the operation for Debian packages inside
def source_build(
    build: Build, build_name: str, check: Check, source: PackageSource, builders: tuple[Builder, ...] = ()
) -> Generator[FunctionCommand, None, None]:
    """Ensures that a build from source exists in its own folder under the builds root.

    + build: the plan's build
    + build_name: from `name_of`
    + check: what shows that the build runs
    + source: where the wheel of its library comes from
    + builders: the builders whose builds the host may use; () to compile always
    """
    if host.get_fact(File, path=f"{layout.BUILDS}/{build_name}/manifest.json"):
        host.noop(f"build {build_name} exists")
        return
    builders_at_work.expect(host.name, build_name)
    yield step(_provide, build, build_name, check, source, builders)


def _provide(
    host: Host, build: Build, name: str, check: Check, source: PackageSource, builders: tuple[Builder, ...]
) -> None:
    """Compiles on this host, unless a builder's record has the build and there is no earlier job to continue.

    Only a build that a builder compiled completely in this run is recorded.
    """
    try:
        refuse_noexec(host)
        if jobs.going(host, _job(name)) or has_result(host, name):
            _compile(host, build, name, check, source)
        elif not _take(host, builders, build, name, check, source):
            _compile(host, build, name, check, source)
            record(host, builders, name)
    finally:
        builders_at_work.finish(host.name, name)


def refuse_noexec(host: Host) -> None:
    """Raises HostFailed if the file system of the builds is mounted noexec."""
    words = ("findmnt", "--noheadings", "--raw", "--output", "TARGET,OPTIONS", "--target", layout.BUILDS)
    target, _, options = remote.run(host, *words).stdout.strip().partition(" ")
    if "noexec" in options.split(","):
        raise HostFailed(
            f"{host.name}: {target} is mounted noexec, so builds in {layout.BUILDS} cannot run",
            f"on the host: mount -o remount,exec {target}; also remove noexec from its line in /etc/fstab",
        )


def work_folder(name: str) -> str:
    """Where the job of a build works."""
    return f"{layout.BUILDS}/.work-{name}"


def result_folder(name: str) -> str:
    """Where the job of a build leaves its result, which has a manifest once it is whole."""
    return f"{layout.BUILDS}/.result-{name}"


def has_result(host: Host, name: str) -> bool:
    """Whether the host has a whole result of a build that is not published."""
    return remote.run(host, "test", "-f", f"{result_folder(name)}/manifest.json").ok


def make(host: Host, name: str, job: jobs.Job, prepare: Callable[[], None]) -> None:
    """Runs the job of a build and publishes its result, or continues with what an earlier run has left of them.

    prepare: what a new job needs.
    """
    running = jobs.going(host, job)
    if not has_result(host, name):
        if not running:
            prepare()
        jobs.run(host, job)
    publish(host, name)


def _job(name: str) -> jobs.Job:
    work = work_folder(name)
    command = ("python3", f"{layout.PROGRAMS}/build_source.py", f"{work}/job.json")
    writable = (work, result_folder(name))
    return jobs.Job(layout.job_unit("build", name), "engine", command, writable, "steps", private_network=True)


def _compile(host: Host, build: Build, name: str, check: Check, source: PackageSource) -> None:
    from rigup.operations.builds.wheels import have_wheel  # few builds have a library of their own

    def prepare() -> None:
        work = work_folder(name)
        _send_source(host, build, name)
        debian_packages(build.packages)
        have_versions(host, "engine", build.pinned_packages)
        archive = f"{work}/source.archive"
        library = build.own_library
        wheel = have_wheel(host, library.wheel, library.sha256, source) if library else ""
        job = compile_job(build, name, archive, wheel, check, host.name, f"{work}/tree", result_folder(name))
        remote.write_file(host, f"{work}/job.json", json.dumps(job))

    make(host, name, _job(name), prepare)


def compile_job(
    build: Build,
    name: str,
    archive: str,
    wheel: str,
    check: Check,
    built_by: str,
    work: str,
    result: str,
) -> dict[str, Any]:
    """The job of build_source.py.

    archive, wheel, work, result: where it reads the source and the library's wheel, works, and leaves the build.
    """
    library = build.own_library
    return {
        "archive": archive,
        "sha256": build.sha256,
        "root": build.root,
        "flags": build.flags,
        "cmake": build.cmake,
        "targets": build.targets,
        "judge": judge_sources() if build.variant == "cuda" else {},
        "library": library and {"path": wheel, **library.model_dump(include={"sha256", "folder", "file"})},
        "work": work,
        "result": result,
        "check": check[0],
        "expect": check[1],
        "manifest": {"name": name, "build": build.model_dump(mode="json"), "built_by": built_by},
    }


def _source(host: Host, build: Build) -> Path:
    """The source archive in this machine's cache; downloads it if missing."""
    if build.address is None or build.sha256 is None:
        raise HostFailed(
            f"{host.name}: {build.engine} {build.version}: rigup.lock has no source archive", "run rigup lock"
        )
    source = LockedSource(
        engine=build.engine, version=build.version, address=build.address, sha256=build.sha256, root=build.root
    )
    with _FETCHING.setdefault(build.sha256, RLock()):
        from rigup.sources.archives import fetch_source  # most runs fetch nothing

        progress = counting(host.name, "engine", "bytes", "fetching the source archive")
        return fetch_source(source, cache_folder() / "sources", progress)


def _send_source(host: Host, build: Build, name: str) -> None:
    archive, work = _source(host, build), work_folder(name)
    folders = 'rm -rf "$1" "$2"; mkdir -m 755 "$1" "$2" "$1/tree"; chown "$3:$3" "$1/tree" "$2"'
    remote.script(host, folders, work, result_folder(name), layout.WORKER_USER, doing=f"making {work}")
    report(Progress(host.name, "engine", text="sending the source archive"))
    remote.send_file(host, archive, f"{work}/source.archive")


def publish(host: Host, name: str) -> None:
    """Publishes the result of a build: hands it to root, makes it read-only, and renames it."""
    if not has_result(host, name):
        raise HostFailed(f"{host.name}: build {name} produced no result", "run rigup apply again to rebuild it")
    put = 'chown -R root:root "$1"; chmod -R u=rwX,go=rX "$1"; sync -f "$1"; mv -T "$1" "$2"; rm -rf "$3" "$4"'
    words = (result_folder(name), f"{layout.BUILDS}/{name}", work_folder(name), unpacked_folder(name))
    remote.script(host, put, *words, doing=f"installing build {name}", timeout=PUBLISH_SECONDS)


def _take(
    host: Host, builders: tuple[Builder, ...], build: Build, name: str, check: Check, source: PackageSource
) -> bool:
    """Installs a builder's build on the host; returns False if there is no record or it does not run there."""
    found = awaited(host, builders, name) if builders else None
    if found is None and [builder.name for builder in builders] == [CONTROLLER]:
        made = _compiled_here(host, builders[0], build, name, check, source)
        found = (builders[0], made) if made else None
    if found is None:
        if builders and not {host.name, CONTROLLER} & {builder.name for builder in builders}:
            text = f"{names_of(builders)} has no build {name}; building it here"
            report(Progress(host.name, "engine", text=text))
        return False
    builder, recorded = found
    try:
        _send(host, builder, recorded, check)
    except HostFailed as error:
        text = f"the build of {builder.name} does not work here; building it again: {error.message}"
        report(Progress(host.name, "engine", text=text))
        forget(host, name)
        return False
    return True


def _compiled_here(
    host: Host, builder: Builder, build: Build, name: str, check: Check, source: PackageSource
) -> BuildRecord | None:
    """The record of a build that this machine compiles; None if it cannot compile it."""
    from rigup.operations.builds import controller  # few fleets compile here
    from rigup.operations.builds.wheels import wheel_here

    system, architecture = controller.own_os(), platform.machine()
    if name_of(build, architecture, system) != name:
        why = f"the controlling machine is {architecture} with {system or 'an unknown system'}"
    elif missing := controller.lacking(build):
        why = f"the controlling machine lacks {missing}"
    else:
        text = "compiling on the controlling machine"
        report(Progress(host.name, "engine", text=text))
        library = build.own_library
        wheel = str(wheel_here(library.wheel, library.sha256, source, host.name)) if library else ""
        return controller.compiled(
            builder,
            name,
            partial(compile_job, build, name, str(_source(host, build)), wheel, check, CONTROLLER),
            counting(host.name, "engine", "steps", text),
        )
    report(Progress(host.name, "engine", text=f"{why}; building {name} on this host"))
    return None


def _send(host: Host, builder: Builder, recorded: BuildRecord, check: Check) -> None:
    """Sends a builder's build and runs the check before it publishes it.

    Raises HostFailed if it arrived damaged or does not run.
    """
    name = recorded.build
    report(Progress(host.name, "engine", text=f"sending the build of {builder.name}"))
    receive(host, builder, recorded)
    unpacked = unpacked_folder(name)
    program = ("python3", f"{layout.PROGRAMS}/check_build.py", f"{unpacked}/{name}", check[1], *check[0])
    jobs.run(host, jobs.Job(layout.job_unit("build", f"check-{name}"), "engine", program, (), private_network=True))
    put = 'sync -f "$1"; mv -T "$1/$2" "$3"; rmdir "$1"; rm -rf "$4"'
    places = (unpacked, name, f"{layout.BUILDS}/{name}", work_folder(name))
    remote.script(host, put, *places, doing=f"installing build {name}", timeout=PUBLISH_SECONDS)
