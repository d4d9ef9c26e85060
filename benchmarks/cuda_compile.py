"""What it costs to compile llama.cpp's CUDA code: for the rig's architecture alone, against upstream's default list.

    python benchmarks/cuda_compile.py TOOLKIT [--card "RTX 3090"] [--sample 12]

TOOLKIT: a folder with bin/nvcc of CUDA 13, such as /usr/local/cuda. Configures the pinned source as `rigup plan` plans
it for the card, and once more with the architectures that upstream takes by itself; compiles the same evenly spread
sample of the CUDA sources both ways, one after another, and prints seconds of processor as a Markdown table: the
sample's sum, and that sum times all sources over sampled ones. Nothing is run, and no GPU is needed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import smallest  # noqa: E402
from rigup.cache import cache_folder  # noqa: E402
from rigup.catalogue.catalogue import load_catalogue  # noqa: E402
from rigup.lock import LockedSource, load_lock  # noqa: E402
from rigup.planner.inputs.rig_and_services import read_rig  # noqa: E402
from rigup.project.planning import plan_service  # noqa: E402
from rigup.service import Service  # noqa: E402
from rigup.sources.archives import fetch_source  # noqa: E402

ARCHITECTURES = "-DCMAKE_CUDA_ARCHITECTURES="
COMPILER = "-DCMAKE_CUDA_COMPILER="


def run(*words: str | Path) -> str:
    """A command's output; ends the benchmark with it if the command fails."""
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"{words[0]} failed:\n{done.stdout[-4000:]}")
    return done.stdout


def unpacked(folder: Path) -> Path:
    """The pinned source's tree."""
    (source,) = (one for one in load_lock(ROOT / "rigup.lock").sources if one.engine == "llama.cpp")
    assert isinstance(source, LockedSource)
    archive = fetch_source(source, cache_folder() / "sources", lambda done, total: None)
    run("tar", "-xf", archive, "-C", folder)
    return folder / source.root


def planned_flags(card: str) -> tuple[str, ...]:
    """CMake's arguments of the build that a rig with one such card gets."""
    catalogue = load_catalogue()
    rig = read_rig({"gpus": [card], "host_memory_gib": 128}, "benchmark", catalogue)
    service = Service(name="chat", model="SmolLM2-135M-Instruct", engine="llama.cpp")
    plan = plan_service("host", "group", rig, service, catalogue, load_lock(ROOT / "rigup.lock"))
    assert plan.build is not None
    return plan.build.flags


def objects_of(tree: Path, build: Path, flags: list[str]) -> list[str]:
    """Configures; the names of the objects of all CUDA sources."""
    run("cmake", "-S", tree, "-B", build, "-G", "Ninja", *flags)
    names = (line.split(":")[0] for line in run("ninja", "-C", build, "-t", "targets", "all").splitlines())
    return sorted(name for name in names if name.endswith(".cu.o"))


def processor_seconds(build: Path, target: str) -> float:
    """Seconds of processor, of user and system, of compiling one object."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run("ninja", "-C", build, "-j", "1", target)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("toolkit", type=Path, metavar="TOOLKIT")
    parser.add_argument("--card", default="RTX 3090", help="take the build of a rig with this card (default: RTX 3090)")
    parser.add_argument("--sample", type=int, default=12, help="compile so many sources (default: 12)")
    args = smallest.arguments(parser, "--sample 1")
    flags = [flag for flag in planned_flags(args.card) if not flag.startswith(COMPILER)]
    here = [f"{COMPILER}{args.toolkit}/bin/nvcc", f"-DCUDAToolkit_ROOT={args.toolkit}", "-DGGML_CUDA_NO_VMM=ON"]
    ways = {
        f"the rig's architecture ({args.card})": [*flags, *here],
        "upstream's default architectures": [flag for flag in [*flags, *here] if not flag.startswith(ARCHITECTURES)],
    }
    print("| compiled for | CUDA sources | sampled | s of processor, sample | s of processor, all (projected) |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        tree = unpacked(Path(folder))
        for number, (name, arguments) in enumerate(ways.items()):
            build = Path(folder) / f"build{number}"
            found = objects_of(tree, build, arguments)
            sample = found[len(found) // args.sample // 2 :: max(1, len(found) // args.sample)][: args.sample]
            spent = sum(processor_seconds(build, each) for each in sample)
            whole = spent * len(found) / len(sample)
            print(f"| {name} | {len(found)} | {len(sample)} | {spent:.0f} | {whole:.0f} |", flush=True)


if __name__ == "__main__":
    main()
