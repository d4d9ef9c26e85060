"""Makes the folder that `bin/gpu-check` needs on a machine without a network: `python -m benchmarks.gpu_pack FOLDER`.

probe.sh, verify.py         the programs of `rigup init` and `rigup verify`, as a host gets them
engine.tar.xz               the locked source of llama.cpp, without what a build does not read
model.gguf, plans.json      a tiny model of tests/tiny, and what rigup plans for it on every GPU of the catalogue
shapes/                     models of full size without their weights: the head of each file, what fills the rest, plans
kernels.json                the shapes of the catalogue's mixtures of experts
wheels/                     CMake and Ninja, as Python packages
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import smallest
from benchmarks.gpu_shapes import SHAPES, Shape
from rigup.cache import cache_folder
from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.facts.probe_script import script
from rigup.lock import LockedSource, load_lock
from rigup.operations.driver.links import program
from rigup.project.inventory import toolkit_root
from rigup.sources.archives import fetch_source
from tests.tiny.checkpoint import name_of, write_gguf

MOST_BYTES = 60_000_000
KIND, CONTEXT, SHAPE_CONTEXT = "full", 8192, 32768
PLANNED = (0, 1)  # 1: some of the cards are too small
WHEELS = ("cmake==3.31.10", "ninja==1.13.0")
COMPILER = "-DCMAKE_CUDA_COMPILER="  # the check uses the one that it finds
UNUSED = ("models", "docs", "tests", "media", "benches", "gguf-py", "conversion", "examples", ".github", "ci")


def main() -> int:
    """Makes the folder from scratch; exits with 1 if it is larger than MOST_BYTES."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    args = smallest.arguments(parser)
    folder = args.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lock = load_lock(toolkit_root() / "rigup.lock")
    (source,) = (found for found in lock.sources if found.engine == "llama.cpp")
    (folder / "probe.sh").write_text(script())
    (folder / "verify.py").write_text(program())
    repack(source, folder / "engine.tar.xz", preset=0 if args.smallest else 6)
    write_gguf(folder / "model.gguf", KIND)
    catalogue = load_catalogue()
    if args.smallest:
        catalogue = replace(catalogue, gpus=catalogue.gpus[:1])
    (folder / "plans.json").write_text(json.dumps(tiny_plans(folder / "model.gguf", source, catalogue), indent=1))
    for shape in SHAPES[:1] if args.smallest else SHAPES:
        pack_shape(shape, folder / "shapes", source, catalogue)
    (folder / "kernels.json").write_text(json.dumps(shapes(catalogue), indent=1))
    words = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        str(folder / "wheels"),
    ]
    subprocess.run([sys.executable, *words, *WHEELS], check=True)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")
    return 0 if size <= MOST_BYTES else 1


def repack(source: LockedSource, target: Path, preset: int) -> None:
    """Writes the locked archive, whose hash is checked, again with only what a build reads."""
    archive = fetch_source(source, cache_folder() / "sources", lambda done, total: None)
    with (
        tarfile.open(archive) as whole,
        lzma.open(target, "wb", preset=preset) as file,
        tarfile.open(fileobj=file, mode="w") as out,
    ):
        for member in whole:
            path = member.name.removeprefix(f"{source.root}/")
            if path == member.name or path.split("/")[0] in UNUSED or not (member.isfile() or member.isdir()):
                continue
            member.name, member.pax_headers = f"engine/{path}", {}  # these repeat long names
            out.addfile(member, whole.extractfile(member) if member.isfile() else None)


def tiny_plans(model: Path, source: LockedSource, catalogue: Catalogue) -> dict[str, Any]:
    """The plans of the tiny model, and the source that their flags are for."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / f"{name_of(KIND)}-F16.gguf"
        shutil.copy(model, file)
        cards = plans(file, name_of(KIND), CONTEXT, source, catalogue)
    return {"cards": cards, "source_sha256": source.sha256}


def pack_shape(shape: Shape, folder: Path, source: LockedSource, catalogue: Catalogue) -> None:
    """Writes what the check makes the file from, and what is planned for it."""
    folder.mkdir(exist_ok=True)
    head, fillings = shape.head(), shape.fillings()
    (folder / f"{shape.name}.head.xz").write_bytes(lzma.compress(head, preset=6))
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / f"{shape.name}-{shape.quant}.gguf"
        file.write_bytes(head)
        os.truncate(file, len(head) + sum(size for _, size in fillings))
        cards = plans(file, shape.name, SHAPE_CONTEXT, source, catalogue)
    experts = "expert_count" in shape.metadata
    found = {"quant": shape.quant, "experts": experts, "fillings": fillings, "cards": cards}
    (folder / f"{shape.name}.json").write_text(json.dumps(found))


def plans(file: Path, model: str, context: int, source: LockedSource, catalogue: Catalogue) -> dict[str, Any]:
    """What `rigup plan --json` says of the model for each GPU, by NVML's name; flags: what CMake gets for the build."""
    found: dict[str, Any] = {}
    release = catalogue.engines_by_name["llama.cpp"].version(source.version)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        _rigup(root, "model", "add", str(file))
        shutil.copy(toolkit_root() / "rigup.lock", root)
        services = {"chat": {"model": model, "context": context, "engine": "llama.cpp", "flags": {"--verbosity": 4}}}
        cards = [gpu.key for gpu in catalogue.gpus if gpu.host_architecture == "x86_64"]
        (root / "inventories").mkdir()
        (root / "group_data").mkdir()
        groups = [f"g{number} = ['g{number}']" for number in range(len(cards))]
        (root / "inventories/fleet.py").write_text("\n".join(groups) + "\n")
        for number, name in enumerate(cards):
            rig = {"gpus": name, "host_memory_gib": 128}
            (root / f"group_data/g{number}.py").write_text(f"rig = {rig!r}\nservices = {services!r}\n")
        for plan in json.loads(_rigup(root, "plan", "--json"))["hosts"]:
            if plan["verdict"] == "ok":
                (gpu,) = plan["rig"]["gpus"]
                wanted = ("memory", "decode_tokens_per_second", "command", "environment", "context", "engine")
                recipe = release.recipe([gpu["compute_capability"]]) if release else None
                flags = [flag for flag in recipe.flags if not flag.startswith(COMPILER)] if recipe else []
                found[gpu["name"]] = {key: plan[key] for key in wanted} | {"flags": flags}
    return found


def shapes(catalogue: Catalogue) -> list[dict[str, Any]]:
    """Experts, hidden size and intermediate size of each mixture of experts, once each."""
    found: dict[tuple[int, ...], dict[str, Any]] = {}
    for model in catalogue.served:
        if model.experts:
            shape = (model.experts, model.experts_per_token or 0, model.hidden, model.expert_intermediate or 0)
            names = ("experts", "experts_per_token", "hidden", "intermediate")
            found.setdefault(shape, dict(zip(names, shape, strict=True)) | {"model": model.name})
    return list(found.values())


def _rigup(folder: Path, *words: str) -> str:
    words = (sys.executable, "-m", "rigup", *words)
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode not in PLANNED:
        raise subprocess.CalledProcessError(done.returncode, words)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
