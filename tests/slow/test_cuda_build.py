"""llama.cpp's CUDA build, as planned, by the real CUDA 13 compiler: configured, and a real CUDA source compiled.

The compiler comes from Python packages instead of NVIDIA's apt repository, so its folder differs, and there is no
driver library to link: what is compiled is objects. Nothing is run; there is no GPU here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import venv
from pathlib import Path

import pytest

from rigup.cache import cache_folder
from rigup.catalogue.catalogue import load_catalogue
from rigup.lock import LockedSource, load_lock
from rigup.plan import Build
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.project.planning import plan_service
from rigup.service import Service
from rigup.sources.archives import fetch_source

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


def planned(card: str) -> Build:
    """The build that a rig with one such card gets."""
    catalogue = load_catalogue()
    rig = read_rig({"gpus": [card], "host_memory_gib": 128}, "test", catalogue)
    service = Service(name="chat", model="SmolLM2-135M-Instruct", engine="llama.cpp")
    plan = plan_service("host", "group", rig, service, catalogue, load_lock(ROOT / "rigup.lock"))
    assert plan.build is not None
    return plan.build


@pytest.mark.parametrize(("capability", "card"), CARDS.items())
def test_the_planned_build_configures_and_compiles(
    capability: str, card: str, toolkit: Path, tree: Path, tmp_path: Path
) -> None:
    flags = [flag for flag in planned(card).flags if not flag.startswith("-DCMAKE_CUDA_COMPILER=")]
    architecture = capability.replace(".", "")
    assert f"-DCMAKE_CUDA_ARCHITECTURES={architecture}" in flags
    here = [f"-DCMAKE_CUDA_COMPILER={toolkit}/bin/nvcc", f"-DCUDAToolkit_ROOT={toolkit}", "-DGGML_CUDA_NO_VMM=ON"]
    run("cmake", "-S", tree, "-B", tmp_path, "-G", "Ninja", *flags, *here)
    targets = run("ninja", "-C", tmp_path, "-t", "targets", "all").splitlines()
    objects = [line.split(":")[0] for line in targets if line.split(":")[0].endswith(tuple(f"/{s}.o" for s in SOURCES))]
    assert len(objects) == len(SOURCES)
    run("ninja", "-C", tmp_path, "-j", str(os.cpu_count() or 1), *objects)
    for compiled in objects:
        assert f"sm_{architecture}" in run("ninja", "-C", tmp_path, "-t", "commands", compiled)
        assert ".nv_fatbin" in run("readelf", "--wide", "--sections", tmp_path / compiled)
