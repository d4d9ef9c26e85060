"""Asks llama.cpp's own code what each plan of a GGUF file takes of each card, and keeps what it says.

    python -m tests.oracle.sizes FOLDER [--only WORDS] [--again]

FOLDER gets the locked llama.cpp, compiled, and the judge's program; the next run finds them there. Cards are simulated,
files are holes (gguf_files.py), and nothing is loaded. It asks what was never asked or whose plan changed since. The
answers are in answers/, a line each.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rigup.cache import cache_folder
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.lock import load_lock
from rigup.plan import Plan
from rigup.programs.build_source import JUDGE, compile_judge, unpack
from rigup.programs.judge.llama_cpp import cards_text, sources
from rigup.sources.archives import fetch_source
from tests.oracle.ask import ANSWERS, ROOT, read_answers, write_answers
from tests.oracle.gguf_files import METADATA, MIXES, make, metadata
from tests.oracle.matrix import M2, RIGS
from tests.published.catalogue import CONFIGS
from tests.published.gguf import SCALED
from tests.published.models import MODELS, Published
from tests.unit.planner.asking import catalogue, decided

RELEASE = "b11434"
LIBRARIES = ("llama-common", "llama")
# Files whose entries are written by hand, of models that are stored nowhere else.
BY_HAND = tuple(
    Published(name, M2, M2, {}, f"unsloth/{name}-GGUF", "minimax-m2")
    for name in ("MiniMax-M2", "MiniMax-M2.1", "MiniMax-M2.5", "MiniMax-M2.7")
)


@dataclass(frozen=True)
class Sizing:
    """One file on one rig. plan: rigup's, which is "ok"."""

    checkpoint: CheckpointEntry
    published: Published
    rig: str
    plan: Plan

    @property
    def name(self) -> str:
        """As of `name_of`."""
        return name_of(self.checkpoint, self.rig)

    @property
    def cards(self) -> str:
        """Those that the service sees, as the judge reads them."""
        rows = ((self.plan.rig.gpus[row.gpu], row.capacity_mib) for row in self.plan.memory)
        return cards_text(
            (memory, memory, gpu.compute_capability, gpu.unified_memory, gpu.name) for gpu, memory in rows
        )

    @property
    def arguments(self) -> list[str]:
        """Of the server, but for the path of the model."""
        words = list(self.plan.command[1:])
        at = words.index("--model")
        return [*words[:at], *words[at + 2 :]]

    @property
    def keys(self) -> dict[str, Any]:
        """The file's metadata."""
        model = catalogue().models_by_name[self.checkpoint.model]
        config = CONFIGS[self.published.config]["config"]
        return metadata(self.published.gguf_architecture, config, model.context)

    @property
    def mix(self) -> str:
        """What llama-quantize is asked for."""
        return mix_of(self.checkpoint, self.published)

    @property
    def digest(self) -> str:
        """Of all that is asked."""
        asked = [self.cards, self.arguments, self.keys, self.mix, self.published.experts]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def name_of(checkpoint: CheckpointEntry, rig: str) -> str:
    """ "org/name Q4_K_M on 4x RTX 3090"."""
    return f"{checkpoint.repo} {checkpoint.quant} on {rig}"


def mix_of(checkpoint: CheckpointEntry, published: Published) -> str:
    """The mix that a file's entry is computed as: that of its name, but for a publisher's own."""
    said = (one.partition("=") for one in published.quants)
    return {quant: mix for quant, _, mix in said if mix}.get(checkpoint.quant, checkpoint.quant)


@cache
def files() -> tuple[tuple[CheckpointEntry, Published], ...]:
    """Catalogued GGUF files of known metadata and types."""
    known = {one.gguf: one for one in (*MODELS, *BY_HAND) if one.gguf_architecture in METADATA}
    every = ((one, known[one.repo]) for one in catalogue().checkpoints if one.scheme == "gguf" and one.repo in known)
    ruled = ((one, published) for one, published in every if SCALED not in one.sources.get("tensors", ""))
    return tuple((one, published) for one, published in ruled if mix_of(one, published) in MIXES)


def sizings(names: Container[str] | None = None) -> Iterator[Sizing]:
    """Every plan that is "ok" of such a file. names: of those wanted; None for all."""
    for checkpoint, published in files():
        asked = {"checkpoint": checkpoint.repo, "quant": checkpoint.quant, "engine": "llama.cpp"}
        for rig, host_memory_gib in RIGS.items():
            if names is None or name_of(checkpoint, rig) in names:
                plan = decided(rig, asked, host_memory_gib)
                if plan.verdict == "ok" and plan.memory:
                    yield Sizing(checkpoint, published, rig, plan)


def judge_digest() -> str:
    """Of the programs that answer."""
    own = json.dumps(sources(), sort_keys=True).encode() + Path(__file__).with_name("gguf_files.py").read_bytes()
    return hashlib.sha256(own).hexdigest()[:16]


def run(*words: str | Path, **options: Any) -> None:
    """Runs a command that must succeed."""
    subprocess.run(["nice", *words], check=True, stdout=subprocess.DEVNULL, **options)


def build(folder: Path) -> Path:
    """The judge's program in a folder that gets llama.cpp, compiled as the plan of a processor has it."""
    program, made = folder / JUDGE, folder / f"made-{judge_digest()}"
    if made.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    (source,) = (one for one in load_lock(ROOT / "rigup.lock").sources if one.engine == "llama.cpp")
    archive = fetch_source(source, cache_folder() / "sources", lambda done, total: None)
    tree = unpack(archive, source.root, folder / "source")
    plan = decided("none", {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"})
    assert plan.build
    registered = "-DCMAKE_CXX_FLAGS=-DGGML_USE_CUDA"
    run("cmake", "-S", tree, "-B", folder / "build", "-G", "Ninja", *plan.build.flags, registered)
    run("cmake", "--build", folder / "build", "--target", *LIBRARIES)
    why = compile_judge(sources(), tree, folder / "build", program)
    assert not why, why
    made.touch()
    return program


def said_of(program: Path, words: list[str], cards: str, name: str) -> dict[str, list[int]]:
    """Bytes of model, context and buffers, by device; a draft's own added to the latter two.

    words: the server's arguments. cards: as the judge reads them. name: of what is asked about, for the error.
    """
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(cards)
        file.flush()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("LLAMA_", "CUDA_"))}
        variables = kept | {"RIGUP_CARDS": file.name}
        done = subprocess.run([program, "sizes", *words], capture_output=True, text=True, timeout=120, env=variables)
    found: dict[str, list[int]] = {}
    for line in done.stdout.splitlines():
        what, device, *sizes = line.split()
        if what in ("model", "draft", "own-draft"):
            own = [0, *map(int, sizes[1:])] if what == "own-draft" else list(map(int, sizes))
            found[device] = [one + other for one, other in zip(found.get(device, [0, 0, 0]), own, strict=True)]
    if done.returncode or not found:
        raise ValueError(f"{name}: {(done.stderr + done.stdout)[-600:]}")
    return found


def file_of(folder: Path, checkpoint: CheckpointEntry, published: Published) -> Path:
    """Where a file is made, of holes."""
    return folder / f"{published.gguf.rpartition('/')[2]}-{checkpoint.quant}-{judge_digest()}.gguf"


def make_if_missing(program: Path, path: Path, checkpoint: CheckpointEntry, published: Published) -> None:
    """Makes it."""
    if not path.exists():
        config = CONFIGS[published.config]["config"]
        keys = metadata(published.gguf_architecture, config, catalogue().models_by_name[checkpoint.model].context)
        make([str(program)], path, keys, mix_of(checkpoint, published), config, published.experts)


def main() -> int:
    """Asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="plans whose name contains this")
    parser.add_argument("--again", action="store_true", help="also those that were answered")
    args = parser.parse_args()
    folder = args.folder.resolve()
    program, judge, path = build(folder), judge_digest(), ANSWERS / f"llama.cpp-{RELEASE}.jsonl"
    answers, kept, every = read_answers(path), {}, list(sizings())
    kept = {one.name: answers[one.name] for one in every if one.name in answers}
    began, asked = time.monotonic(), 0
    for sizing in every:
        same = kept.get(sizing.name, {}).get("asked") == sizing.digest and kept[sizing.name]["judge"] == judge
        if args.only not in sizing.name or (same and not args.again):
            continue
        model = file_of(folder, sizing.checkpoint, sizing.published)
        try:
            make_if_missing(program, model, sizing.checkpoint, sizing.published)
            words = ["--model", str(model), *sizing.arguments]
            said: dict[str, Any] = {"devices": said_of(program, words, sizing.cards, sizing.name)}
        except (ValueError, KeyError) as error:
            said = {"failed": str(error)}
            print(f"{sizing.name}: {error!r}"[:400], flush=True)
        kept[sizing.name] = {"id": sizing.name, "asked": sizing.digest, "judge": judge, **said}
        asked += 1
        write_answers(path, kept)
    print(f"{len(every)} plans, {asked} asked in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
