"""llama.cpp's CUDA build, as planned, by the real CUDA 13 compiler: configured, and a real CUDA source compiled.

The compiler comes from Python packages instead of NVIDIA's apt repository, so its folder differs, and there is no
driver library to link: what is compiled is objects. No kernel is run; there is no GPU here.

With NCCL, the one file that calls it is compiled against the locked wheel, and the build's own job is run for a small
program that CMake links as it would llama-server.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tarfile
import venv
from pathlib import Path

import pytest

from rigup.cache import cache_folder
from rigup.catalogue.catalogue import load_catalogue
from rigup.lock import LockedSource, load_lock
from rigup.operations.builds.source import compile_job
from rigup.operations.builds.wheels import fetch_wheel
from rigup.plan import Build
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.programs import build_source
from rigup.project.planning import plan_service
from rigup.service import Service
from rigup.sources.archives import fetch_source
from tests.unit.planner.asking import NCCL

pytestmark = [pytest.mark.slow, pytest.mark.rests_on("llama.cpp's package", "builds from source")]

ROOT = Path(__file__).parents[2]
TOOLKIT = "cuda-toolkit[nvcc,cudart,cccl,cublas,crt,nvvm]==13.0.3.0"
CARDS = {
    "8.6": "RTX 3090",
    "8.9": "RTX 4090",
    "9.0": "H100 80GB HBM3",
    "10.0": "B200",
    "12.0": "RTX PRO 6000 Blackwell Workstation Edition",
    "12.1": "GB10",
}
SOURCES = ("norm.cu",)
CALLS_NCCL = "ggml-cuda.cu"
LINKED = """
cmake_minimum_required(VERSION 3.18)
project(linked CXX)
include(cmake/FindNCCL.cmake)
add_executable(llama-server main.cpp)
set_target_properties(llama-server PROPERTIES RUNTIME_OUTPUT_DIRECTORY bin)
target_include_directories(llama-server PRIVATE "{toolkit}/include")
target_link_libraries(llama-server PRIVATE NCCL::NCCL)
"""
MAIN = """
#include <cstdio>
#include <nccl.h>
int main() { int version = 0; ncclGetVersion(&version); std::printf("NCCL %d\\n", version); }
"""


def run(*words: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(words, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def toolkit() -> Path:
    """The folder of the toolkit, made once for all runs: 1.1 GB, most of it cuBLAS."""
    for program in ("cmake", "ninja", "g++"):
        if shutil.which(program) is None:
            pytest.fail(f"{program} is missing: bin/environment installs it for the slow tests")
    home = cache_folder() / "tests" / TOOLKIT.replace("[", "-").replace("]", "-").replace(",", "-")
    found = home / "lib" / "cuda"
    if not found.exists():
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        run(home / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", TOOLKIT)
        (packages,) = home.glob("lib/python*/site-packages/nvidia/cu13")
        for library in (packages / "lib").glob("lib*.so.*"):
            # the packages hold versioned names only; CMake looks for the plain one
            plain = library.with_name(library.name.split(".so.")[0] + ".so")
            if not plain.exists():
                plain.symlink_to(library.name)
        (packages / "lib64").symlink_to("lib")
        found.symlink_to(packages)
    return found.resolve()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pinned source, unpacked."""
    (source,) = (s for s in load_lock(ROOT / "rigup.lock").sources if s.engine == "llama.cpp")
    assert isinstance(source, LockedSource)
    archive = fetch_source(source, cache_folder() / "sources", lambda done, total: None)
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(archive) as tar:
        # Debian 12's Python has no filter; the archive has the locked sha256.
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder / source.root


@pytest.fixture(scope="module")
def wheel() -> Path:
    """NVIDIA's wheel of NCCL, fetched once for all runs: 196 MB."""
    name = NCCL.wheel("x86_64")
    assert name is not None
    return fetch_wheel(name, NCCL.files[name], cache_folder() / "sources")


def planned(card: str, cards: int = 1) -> Build:
    """The build that a rig with so many such cards gets, if each layer is cut for all of them."""
    catalogue = load_catalogue()
    rig = read_rig({"gpus": [card] * cards, "host_memory_gib": 128}, "test", catalogue)
    service = Service(name="chat", model="SmolLM2-135M-Instruct", engine="llama.cpp", tensor_parallel=cards)
    lock = load_lock(ROOT / "rigup.lock").model_copy(update={"nccl": NCCL})
    plan = plan_service("host", "group", rig, service, catalogue, lock)
    assert plan.build is not None
    return plan.build


@pytest.mark.parametrize(("capability", "card"), CARDS.items())
def test_the_planned_build_configures_and_compiles(
    capability: str, card: str, toolkit: Path, tree: Path, tmp_path: Path
) -> None:
    architecture = capability.replace(".", "")
    flags = planned(card).flags
    assert f"-DCMAKE_CUDA_ARCHITECTURES={architecture}" in flags
    configured(flags, toolkit, tree, tmp_path)
    for compiled in objects(SOURCES, tmp_path):
        assert f"sm_{architecture}" in run("ninja", "-C", tmp_path, "-t", "commands", compiled)
        assert ".nv_fatbin" in run("readelf", "--wide", "--sections", tmp_path / compiled)


def configured(flags: tuple[str, ...], toolkit: Path, tree: Path, folder: Path) -> str:
    """What CMake says to a build's flags, with the toolkit where it is here."""
    kept = [flag for flag in flags if not flag.startswith("-DCMAKE_CUDA_COMPILER=")]
    here = [f"-DCMAKE_CUDA_COMPILER={toolkit}/bin/nvcc", f"-DCUDAToolkit_ROOT={toolkit}", "-DGGML_CUDA_NO_VMM=ON"]
    return run("cmake", "-S", tree, "-B", folder, "-G", "Ninja", *kept, *here)


def objects(sources: tuple[str, ...], folder: Path) -> list[str]:
    """The objects of these sources, compiled."""
    targets = [line.split(":")[0] for line in run("ninja", "-C", folder, "-t", "targets", "all").splitlines()]
    found = [target for target in targets if target.endswith(tuple(f"/{source}.o" for source in sources))]
    assert len(found) == len(sources)
    run("ninja", "-C", folder, "-j", str(os.cpu_count() or 1), *found)
    return found


def test_what_cuts_layers_calls_the_locked_nccl_and_looks_for_it_beside_itself(
    toolkit: Path, tree: Path, wheel: Path, tmp_path: Path
) -> None:
    build = planned(CARDS["8.6"], 2)
    assert build.own_library is not None
    unpacked = build_source.unpack_library(
        {"path": str(wheel), "folder": build.own_library.folder}, tmp_path / "library"
    )
    flags = tuple(flag.replace("{library}", str(unpacked)) for flag in build.flags)
    assert f"Found NCCL: {unpacked}/lib/libnccl.so.2" in configured(flags, toolkit, tree, tmp_path)
    linked = run("ninja", "-C", tmp_path, "-t", "commands", "llama-server").splitlines()[-1]
    assert "library/nvidia/nccl/lib/libnccl.so.2" in linked
    (path,) = (word.removeprefix("-Wl,-rpath,") for word in shlex.split(linked) if word.startswith("-Wl,-rpath,"))
    assert path.replace("\\$", "$") == f"$ORIGIN:{toolkit}/lib"
    (compiled,) = objects((CALLS_NCCL,), tmp_path)
    called = {line.split()[-1] for line in run("nm", "--undefined-only", tmp_path / compiled).splitlines()}
    assert {"ncclCommInitAll", "ncclAllReduce", "ncclGroupStart", "ncclGroupEnd"} <= called
    there = run("nm", "--dynamic", "--defined-only", unpacked / "lib/libnccl.so.2")
    assert {name for name in called if name.startswith("nccl")} <= {line.split()[-1] for line in there.splitlines()}


def test_the_job_of_such_a_build_leaves_a_program_that_needs_no_nccl_of_the_host(
    toolkit: Path, tree: Path, wheel: Path, tmp_path: Path
) -> None:
    source, archive = tmp_path / "engine", tmp_path / "archive"
    shutil.copytree(tree / "ggml/cmake", source / "cmake")
    (source / "CMakeLists.txt").write_text(LINKED.replace("{toolkit}", str(toolkit)))
    (source / "main.cpp").write_text(MAIN)
    with tarfile.open(archive, "w") as tar:
        tar.add(source, "engine")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    build = planned(CARDS["8.6"], 2).model_copy(update={"root": "engine", "sha256": sha256})
    check = (("bin/llama-server",), "NCCL 22809")
    paths = (str(tmp_path / name) for name in ("work", "result"))
    build_source.main(compile_job(build, "name", str(archive), str(wheel), check, "here", *paths))
    moved = (tmp_path / "result").rename(tmp_path / "moved")
    program = moved / "bin/llama-server"
    assert {path.name for path in program.parent.iterdir()} == {"llama-server", "libnccl.so.2"}
    said = run("readelf", "--wide", "--dynamic", program)
    assert "Shared library: [libnccl.so.2]" in said and "path: [$ORIGIN]" in said
    assert run("env", "--ignore-environment", program) == "NCCL 22809\n"
    assert f"libnccl.so.2 => {program.parent}/libnccl.so.2" in run("ldd", program)
