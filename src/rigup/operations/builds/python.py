"""An installed engine build: a Python environment, made on the host by uv from locked wheels only.

It is made under a temporary name, mounted at its final path for the installer, because scripts and pyvenv.cfg contain
absolute paths. After the checks it belongs to root, and one rename publishes it.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from functools import partial

from pyinfra import host
from pyinfra.api import FunctionCommand, operation
from pyinfra.facts.files import File

from rigup import layout
from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.apt.packages import have_packages
from rigup.operations.builds import wheels
from rigup.operations.builds.source import Check, has_result, make, refuse_noexec, result_folder, work_folder
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.steps import step
from rigup.plan import Build
from rigup.settings import PackageSource

UV_CACHE = f"{layout.PACKAGES}/uv"

Checks = tuple[Check, ...]


@operation()
def python_build(
    build: Build, build_name: str, source: PackageSource, checks: Checks
) -> Generator[FunctionCommand, None, None]:
    """Ensures that a Python environment exists in its own folder under the builds root.

    + build: the plan's build, with its locked environment and uv
    + build_name: from `name_of`
    + source: the source of the packages
    + checks: what shows that it works, without a GPU
    """
    if host.get_fact(File, path=f"{layout.BUILDS}/{build_name}/manifest.json"):
        host.noop(f"build {build_name} exists")
        return
    yield step(_provide, build, build_name, source, checks)


def _provide(host: Host, build: Build, name: str, source: PackageSource, checks: Checks) -> None:
    """Builds the environment, or continues the job of an earlier run."""
    if build.environment is None or build.uv is None:
        raise HostFailed(f"{host.name}: {build.engine} {build.version} is not in rigup.lock", "run rigup lock")
    refuse_noexec(host)
    job = _job(name, source.wheelhouse is not None and build.environment.python_from == "os")
    try:
        make(host, name, job, partial(_prepare, host, build, name, source, checks))
    except HostFailed:
        if not jobs.at_work(host, job) and not has_result(host, name):
            remote.run(host, "rm", "-rf", work_folder(name), result_folder(name), timeout=300)
        raise


def _job(name: str, private_network: bool) -> jobs.Job:
    work, final = work_folder(name), f"{layout.BUILDS}/{name}"
    unit = layout.job_unit("build", name)
    return jobs.Job(
        unit=unit,
        step="engine",
        command=("python3", f"{layout.PROGRAMS}/build_environment.py", layout.job_file(unit)),
        writable=(work, final, UV_CACHE),
        unit_of_progress="files",
        private_network=private_network,
        shown=(layout.BUILDS, {work: work, final: result_folder(name)}),
    )


def _prepare(host: Host, build: Build, name: str, source: PackageSource, checks: Checks) -> None:
    """Installs the packages that the build needs, sends the job's files and writes its configuration."""
    assert build.environment is not None and build.uv is not None
    work, locked = work_folder(name), build.environment
    have_packages(host, "engine", build.packages)
    uv = wheels.have_packages(host, build, source)
    folders = (
        'rm -rf "$1" "$2"; mkdir -m 755 "$1" "$2" "$1/tree"; chown "$3:$3" "$1/tree" "$2"; '
        'install -d -m 755 "$(dirname "$4")"; install -d -m 755 -o "$3" -g "$3" "$4"'
    )
    remote.script(
        host, folders, work, result_folder(name), layout.WORKER_USER, UV_CACHE, doing=f"making {work}", timeout=300
    )
    job = {
        "uv": {"file": uv, "sha256": build.uv.files[wheels.uv_wheel(build)]},
        "python": locked.python,
        "python_from": locked.python_from,
        "python_mirror": wheels.have_python(host, build, source),
        "files": locked.files,
        "addresses": locked.addresses,
        "wheels": wheels.STORE if source.wheelhouse else None,
        "index": source.index,
        "cache": UV_CACHE,
        "provides": build.provides,
        "compiler": _compiler(build),
        "work": f"{work}/tree",
        "result": f"{layout.BUILDS}/{name}",
        "checks": checks,
        "manifest": {"name": name, "build": build.model_dump(mode="json"), "built_by": host.name},
    }
    remote.write_file(host, layout.job_file(layout.job_unit("build", name)), json.dumps(job))


def _compiler(build: Build) -> dict[str, object] | None:
    """What the job makes of the build's compiler."""
    compiler = build.own_compiler
    if compiler is None:
        return None
    wanted = compiler.model_dump(include={"folder", "kernels", "compute_capabilities"})
    return wanted | {"home": layout.CUDA_HOME, "program": f"{layout.PROGRAMS}/compile_kernels.py"}
