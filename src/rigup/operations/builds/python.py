"""An installed engine build: a Python environment, made on the host by uv from locked wheels only.

It is made under a temporary name, mounted at its final path for the installer, because scripts and pyvenv.cfg contain
absolute paths. After the checks it belongs to root, and one rename publishes it.

GPU kernels that are compiled with it may come from a builder that the inventory names (builders.py). Such a build is
made in two parts, packages first, so that no host waits for a builder while it has anything of its own to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial

from pyinfra import host
from pyinfra.api import FunctionCommand, operation
from pyinfra.facts.files import File

from rigup import layout
from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.apt.packages import have_packages
from rigup.operations.builds import builders_at_work, wheels
from rigup.operations.builds.builders import (
    awaited,
    forget,
    kernel_builders,
    names_of,
    receive,
    record,
    unpacked_folder,
)
from rigup.operations.builds.source import (
    Check,
    has_result,
    make,
    publish,
    refuse_noexec,
    result_folder,
    work_folder,
)
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.plan import Build
from rigup.programs.build_environment import INSTALLED, KERNELS, PACKAGES, TRIAL
from rigup.settings import Builder, PackageSource

UV_CACHE = f"{layout.PACKAGES}/uv"

Checks = tuple[Check, ...]


@operation()
def python_build(
    build: Build, build_name: str, source: PackageSource, checks: Checks, builders: tuple[Builder, ...] = ()
) -> Generator[FunctionCommand, None, None]:
    """Ensures that a Python environment exists in its own folder under the builds root.

    + build: the plan's build, with its locked environment and uv
    + build_name: from `name_of`
    + source: the source of the packages
    + checks: what shows that it works, without a GPU
    + builders: the builders whose GPU kernels the host may use; () to compile them always
    """
    if host.get_fact(File, path=f"{layout.BUILDS}/{build_name}/manifest.json"):
        host.noop(f"build {build_name} exists")
        return
    builders = kernel_builders(build, builders)
    if host.name in {builder.name for builder in builders}:
        builders_at_work.expect(host.name, build_name)
    yield step(_provide, build, build_name, source, checks, builders)


def _provide(
    host: Host, build: Build, name: str, source: PackageSource, checks: Checks, builders: tuple[Builder, ...]
) -> None:
    """Makes the environment; from then on, or if that fails, no other host waits for it."""
    try:
        _make(host, build, name, source, checks, builders)
    finally:
        builders_at_work.finish(host.name, name)


def _make(
    host: Host, build: Build, name: str, source: PackageSource, checks: Checks, builders: tuple[Builder, ...]
) -> None:
    """Builds the environment, or continues the job of an earlier run."""
    if build.environment is None or build.uv is None:
        raise HostFailed(f"{host.name}: {build.engine} {build.version} is not in rigup.lock", "run rigup lock")
    refuse_noexec(host)
    job = _job(name, source.wheelhouse is not None and build.environment.python_from == "os")
    write_job = partial(_write_job, host, build, name, source, checks)
    prepare = partial(_prepare, host, build, name, source, write_job)
    try:
        if builders:
            _make_in_two_parts(host, name, job, prepare, write_job, builders)
        else:
            make(host, name, job, prepare)
    except HostFailed:
        if not jobs.at_work(host, job) and not has_result(host, name):
            remote.run(host, "rm", "-rf", work_folder(name), result_folder(name), timeout=300)
        raise


def _make_in_two_parts(
    host: Host,
    name: str,
    job: jobs.Job,
    prepare: Callable[[], None],
    write_job: Callable[..., None],
    builders: tuple[Builder, ...],
) -> None:
    """Installs the packages, then takes the kernels of a builder or compiles them; continues what an earlier run left.

    Only kernels of an environment that a builder made completely in this run are recorded.
    """
    whole = False
    if jobs.going(host, job):
        jobs.run(host, job)
    if not has_result(host, name):
        if not _has_packages(host, name):
            prepare()
            jobs.run(host, replace(job, command=(*job.command, PACKAGES)))
            whole = True
        maker = _take_kernels(host, name, write_job, builders)
        whole = whole and not maker
        write_job(maker=maker)
        jobs.run(host, _kernels_job(name, job, maker))
    publish(host, name)
    if whole:
        record(host, builders, name, layout.KERNELS, "manifest.json")


def _has_packages(host: Host, name: str) -> bool:
    """Whether the host has an unpublished environment of a build that lacks nothing but kernels and checks."""
    installed = f"{result_folder(name)}/{INSTALLED}"
    return remote.run(host, "test", "-f", installed, "-a", "-d", f"{work_folder(name)}/tree").ok


def _take_kernels(host: Host, name: str, write_job: Callable[..., None], builders: tuple[Builder, ...]) -> str:
    """Receives a builder's kernels; returns its name, or "" if there are none or they do not load on the host."""
    found = awaited(host, builders, name, "the kernels of ")
    if found is None:
        if host.name not in {builder.name for builder in builders}:
            text = f"{names_of(builders)} has no kernels of {name}; compiling them here"
            report(Progress(host.name, "engine", text=text))
        return ""
    builder, recorded = found
    try:
        report(Progress(host.name, "engine", text=f"sending the kernels of {builder.name}"))
        receive(host, builder, recorded)
        write_job(maker=builder.name)
        jobs.run(host, _trial_job(name))
    except HostFailed as error:
        text = f"the kernels of {builder.name} do not work here; compiling them: {error.message}"
        report(Progress(host.name, "engine", text=text))
        forget(host, name)
        return ""
    return builder.name


def _job(name: str, private_network: bool) -> jobs.Job:
    work, final = work_folder(name), f"{layout.BUILDS}/{name}"
    unit = layout.job_unit("build", name)
    return jobs.Job(
        unit=unit,
        step="engine",
        command=_program(name),
        writable=(work, final, UV_CACHE),
        unit_of_progress="files",
        private_network=private_network,
        shown=(layout.BUILDS, {work: work, final: result_folder(name)}),
    )


def _program(name: str) -> tuple[str, ...]:
    return ("python3", f"{layout.PROGRAMS}/build_environment.py", _file(name))


def _file(name: str) -> str:
    return layout.job_file(layout.job_unit("build", name))


def _kernels_job(name: str, job: jobs.Job, maker: str) -> jobs.Job:
    """The job's second part. maker: whose kernels it gets; "" for none."""
    return replace(
        job,
        command=(*job.command, KERNELS),
        writable=(work_folder(name), f"{layout.BUILDS}/{name}"),
        private_network=True,
        readable={unpacked_folder(name): unpacked_folder(name)} if maker else {},
    )


def _trial_job(name: str) -> jobs.Job:
    """Loads a builder's kernels where nothing can be written: their code runs for the first time."""
    return jobs.Job(
        unit=layout.job_unit("build", f"check-{name}"),
        step="engine",
        command=(*_program(name), TRIAL),
        writable=(),
        private_network=True,
        shown=(layout.BUILDS, {}),
        readable={f"{layout.BUILDS}/{name}": result_folder(name), unpacked_folder(name): unpacked_folder(name)},
    )


def _prepare(host: Host, build: Build, name: str, source: PackageSource, write_job: Callable[..., None]) -> None:
    """Installs the packages that the build needs, sends the job's files and writes its configuration."""
    work = work_folder(name)
    have_packages(host, "engine", build.packages)
    uv = wheels.have_packages(host, build, source)
    folders = (
        'rm -rf "$1" "$2"; mkdir -m 755 "$1" "$2" "$1/tree"; chown "$3:$3" "$1/tree" "$2"; '
        'install -d -m 755 "$(dirname "$4")"; install -d -m 755 -o "$3" -g "$3" "$4"'
    )
    remote.script(
        host, folders, work, result_folder(name), layout.WORKER_USER, UV_CACHE, doing=f"making {work}", timeout=300
    )
    write_job(uv=uv, python_mirror=wheels.have_python(host, build, source))


def _write_job(
    host: Host,
    build: Build,
    name: str,
    source: PackageSource,
    checks: Checks,
    *,
    uv: str = "",
    python_mirror: str | None = None,
    maker: str = "",
) -> None:
    """Writes the configuration of the job. uv, python_mirror: for the packages. maker: as for `_kernels_job`."""
    assert build.environment is not None and build.uv is not None
    locked = build.environment
    job = {
        "uv": {"file": uv, "sha256": build.uv.files[wheels.uv_wheel(build)]},
        "python": locked.python,
        "python_from": locked.python_from,
        "python_mirror": python_mirror,
        "files": locked.files,
        "addresses": locked.addresses,
        "wheels": wheels.STORE if source.wheelhouse else None,
        "index": source.index,
        "cache": UV_CACHE,
        "provides": build.provides,
        "compiler": _compiler(build, name, maker),
        "work": f"{work_folder(name)}/tree",
        "result": f"{layout.BUILDS}/{name}",
        "checks": checks,
        "manifest": {"name": name, "build": build.model_dump(mode="json"), "built_by": host.name},
    }
    remote.write_file(host, _file(name), json.dumps(job))


def _compiler(build: Build, name: str, maker: str) -> dict[str, object] | None:
    """What the job makes of the build's compiler."""
    compiler = build.own_compiler
    if compiler is None:
        return None
    wanted = compiler.model_dump(include={"folder", "kernels", "compute_capabilities"})
    program, made = f"{layout.PROGRAMS}/compile_kernels.py", f"{unpacked_folder(name)}/{name}/{layout.KERNELS}"
    return wanted | {
        "home": layout.CUDA_HOME,
        "program": program,
        "kept": layout.KERNELS,
        "made": {"folder": made, "by": maker} if maker else None,
    }
