"""Asks llama.cpp's own code what a step of each catalogued shape reserves of a GPU, and writes the table of a release.

    python -m tests.oracle.buffers FOLDER [--only WORDS] [--again]

FOLDER is that of `tests.oracle.sizes`, which has compiled the judge there. Between two contexts that were asked about a
third one is, until a line through both tells what it says. It asks about shapes that this judge was never asked about.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from rigup.catalogue.buffers import (
    FOLDER,
    GPUS,
    LARGE,
    SMALL,
    BatchShape,
    Hosted,
    Position,
    asked_layers,
    is_whole,
)
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.draft_layers import draft_modules
from rigup.catalogue.model import Model
from rigup.planner.memory.llama_cpp_buffers import PIPELINE_COPIES, inputs_held, layer_inputs
from rigup.planner.memory.weights import weights_of
from rigup.programs.judge.llama_cpp import cards_text
from rigup.units import MIB
from tests.oracle.sizes import RELEASE, build, file_of, files, judge_digest, make_if_missing, said_of
from tests.published.models import Published
from tests.unit.planner.asking import catalogue

ENGINE = "llama.cpp"
FEWER_GPUS, MORE_GPUS = 2, 8
MOST_COPIES = 2
LOWEST, STEP = 4096, 256
CLOSEST, CLOSEST_PART = 8192, 8
"""Tokens: contexts are multiples of a step, and two that are asked about lie no closer, nor than this part of them."""
OFF_MIB, OFF_PART = 4.0, 0.005
MASK_MIB = 16.0
"""What the GPU that makes a mask may take more than the sample, in a step of the smaller size."""
SLOTS = 8
PLENTY_MIB = 16_000_000
Place = tuple[Position, Hosted]
Sizes = dict[Place, float]
"""MiB of each place that an arrangement has."""


@dataclass(frozen=True)
class Sample:
    """A file, and how it lies: on `gpus` of them, the experts of so many layers in the host's memory.

    copies: of a matrix of experts, which plans add.
    """

    checkpoint: CheckpointEntry
    path: Path
    gpus: int
    hosted: int
    copies: int = 0

    @property
    def whole(self) -> bool:
        """Whether its weights are 16 bits wide."""
        return is_whole(self.checkpoint)

    @property
    def model(self) -> Model:
        """Its model."""
        return catalogue().models_by_name[self.checkpoint.model]

    def sizes(self, program: Path, batch: BatchShape) -> Sizes:
        """Of one batch."""
        model, counts = self.model, split(self.model, self.gpus)
        behind = 1 + (draft_modules(model) if weights_of(self.checkpoint, model).mtp else 0)
        words = ["--ctx-size", batch.context * batch.slots, "--parallel", batch.slots, "--n-gpu-layers", "all"]
        words += ["--flash-attn", "on", "--fit", "off", "--offline", "--ubatch-size", batch.micro_batch]
        words += ["--batch-size", LARGE]
        if self.gpus > 1:
            words += ["--split-mode", "layer"]
            words += ["--tensor-split", ",".join(map(str, (*counts[:-1], counts[-1] + behind)))]
        if self.hosted:
            words += ["--n-cpu-moe", self.hosted]
        cards = cards_text((PLENTY_MIB, PLENTY_MIB, "9.0", False, "NVIDIA H100") for _ in counts)
        said = said_of(program, [*map(str, ("--model", self.path, *words))], cards, str(self.path))
        beside = zip(self.places(counts), self.beside(batch, counts), strict=True)
        return highest_of([{place: (said[f"CUDA{gpu}"][2] - size) / MIB} for gpu, (place, size) in enumerate(beside)])

    def places(self, counts: list[int]) -> Iterator[Place]:
        """Where each GPU stands."""
        start = 0
        for gpu, count in enumerate(counts):
            start += count
            hosted: Hosted = "none" if not self.hosted else "all" if start <= self.hosted else "some"
            if self.gpus == 1:
                yield "only", hosted
            else:
                yield "first" if gpu == 0 else "last" if gpu == self.gpus - 1 else "middle", hosted

    def beside(self, batch: BatchShape, counts: list[int]) -> Iterator[float]:
        """Bytes that plans add for each GPU: copies of experts, and inputs of layers."""
        model = self.model
        copies = PIPELINE_COPIES if self.gpus > 1 and not self.hosted else 1
        makes = any(entry.own_mask.made for entry in model.attention)
        inputs = layer_inputs(model, batch, copies)
        shares = self.shares
        for gpu, end in enumerate(accumulate(counts)):
            run = slice(end - counts[gpu], end)
            own = 0.0 if makes and gpu == 0 else inputs_held(inputs[run], shares[run])
            yield own + (self.moved(self.copies) if self.hosted and not gpu else 0.0)

    def moved(self, copies: int) -> float:
        """Bytes of so many copies of experts."""
        return weights_of(self.checkpoint, self.model).expert_copies(self.shares, copies)

    @property
    def shares(self) -> list[float]:
        """The part of each layer's experts that is on the host."""
        return [float(layer < self.hosted) for layer in range(self.model.layers)]


def split(model: Model, gpus: int) -> list[int]:
    """Layers on each of them."""
    each, more = divmod(model.layers, gpus)
    return [each + (gpu < more) for gpu in range(gpus)]


def copies_of(wanted: list[Sample], ask: Callable[[Sample, BatchShape], Sizes]) -> int:
    """How many of the largest matrix a GPU holds that computes experts of the host. wanted: of all mixes.

    That depends on what else is reserved, so that a longer context may need one more.
    """
    if not wanted:
        return 0
    batches = [BatchShape(context, 1, SMALL) for context in (LOWEST, wanted[0].model.context // STEP * STEP)]
    found = []
    for one in wanted:
        whole = replace(one, hosted=0)
        more = (ask(one, batch)["only", "all"] - ask(whole, batch)["only", "none"] for batch in batches)
        found.append(round(max(more) * MIB / one.moved(1)))
    return max(1, min(MOST_COPIES, *found))


def arrangements(checkpoint: CheckpointEntry, path: Path, gpus: int, copies: int) -> Iterator[Sample]:
    """All that a plan can have on so many GPUs; of experts on the host few, nearly a GPU's, and all."""
    model = catalogue().models_by_name[checkpoint.model]
    yield Sample(checkpoint, path, gpus, 0)
    if model.experts:
        counts = {model.dense_layers + 1, model.layers // gpus - 1, model.layers}
        yield from (Sample(checkpoint, path, gpus, count, copies) for count in sorted(counts))


def lowest_of(longest: int) -> int:
    """The shortest context that is asked about, of a model with this one."""
    return min(LOWEST, longest // 2 // STEP * STEP)


def curve(ask: Callable[[int], Sizes], highest: int) -> dict[int, Sizes]:
    """By context, as many as lines need."""
    found = {context: ask(context) for context in (lowest_of(highest), highest)}

    def between(low: int, high: int) -> None:
        context = (low + high) // 2 // STEP * STEP
        if high - low < max(2 * CLOSEST, high // CLOSEST_PART):
            return
        middle, part = ask(context), (context - low) / (high - low)
        lines = {place: found[low][place] + (found[high][place] - found[low][place]) * part for place in middle}
        if any(abs(mib - lines[place]) > off(mib) for place, mib in middle.items()):
            found[context] = middle
            between(low, context)
            between(context, high)

    between(min(found), max(found))
    return found


def off(mib: float) -> float:
    """How far from a line an answer may be."""
    return max(OFF_MIB, OFF_PART * mib)


def highest_of(every: list[Sizes]) -> Sizes:
    """Of several answers to the same question."""
    return {
        place: max(one[place] for one in every if place in one) for place in {place for one in every for place in one}
    }


class Group(NamedTuple):
    """Samples of one shape on equally many GPUs. less: with half the layers on each. more: with twice as many.

    own: of one file. others: of files in other mixes.
    """

    own: list[Sample]
    less: list[Sample]
    more: list[Sample]
    others: list[Sample]


def rows(group: Group, ask: Callable[[Sample, BatchShape], Sizes]) -> dict[Place, dict[str, list[float]]]:
    """By place and micro-batch, as rigup.catalogue.buffers reads them."""
    model = group.own[0].model
    longest = model.context // STEP * STEP
    lowest = lowest_of(longest)
    found: dict[Place, dict[str, list[float]]] = defaultdict(dict)
    for size in (SMALL, LARGE):

        def of(context: int, asked: list[Sample], slots: int = 1, size: int = size) -> Sizes:
            return highest_of([ask(one, BatchShape(context, slots, size)) for one in asked])

        points = curve(lambda context: of(context, group.own), longest)
        least = points[lowest]
        slots = of(lowest, group.own, SLOTS) if any(entry.folds for entry in model.attention) else {}
        other, whole = (of(lowest, [one for one in group.others if one.whole is kind]) for kind in (False, True))
        ends = (lowest, longest) if group.less else ()
        less, more = ({context: of(context, asked) for context in ends} for asked in (group.less, group.more))
        for at, mib in least.items():
            # Fewer layers take more where they are of other kinds, and still fewer may do so again.
            fewer = max((less[context][at] - points[context][at] for context in ends), default=0.0)
            mixed = max(0.0, other.get(at, mib) - mib) + max(0.0, 2 * fewer)
            wide = max(0.0, whole.get(at, mib) - mib - mixed)
            slot = max(0.0, slots.get(at, mib) - mib) / (SLOTS - 1)
            added = [per_layer(model, at, points[context], more[context]) for context in ends]
            saved = [per_layer(model, at, less[context], points[context], MORE_GPUS) for context in ends]
            sizes = {context: there[at] for context, there in sorted(points.items())}
            # As far as a line may be below what lies between two points, and other layers than those of the sample.
            makes = at[0] == "first" and at[1] != "none" and any(entry.own_mask.made for entry in model.attention)
            mixed += MASK_MIB * size / SMALL * makes
            straight = len(sizes) == 2 and (at[0] == "only" or len(model.attention) == 1)
            kept = reduced({context: mib + mixed + (0.0 if straight else off(mib)) for context, mib in sizes.items()})
            # Half of what fewer layers saved: which kinds of layers they are counts, too.
            layers = (math.floor(min(saved, default=0) * 500) / 1000, math.ceil(max(added, default=0) * 1000) / 1000)
            head = (rounded(slot), rounded(wide), *layers)
            found[at][str(size)] = [*head, *(value for pair in kept for value in pair)]
    return found


def per_layer(model: Model, at: Place, less: Sizes, more: Sizes, gpus: int = GPUS) -> float:
    """MiB that a layer adds, of answers for so many GPUs and for half as many, of which none may be in the middle."""
    like: Place = at if at in more else ("last", at[1])
    layers = asked_layers(model.layers, gpus // 2, like[0]) - asked_layers(model.layers, gpus, like[0])
    return max(0.0, more[like] - less[like]) / layers


def reduced(points: Mapping[int, float]) -> list[tuple[int, float]]:
    """Without those that a line between their neighbours tells, to a tenth of a MiB."""
    kept = [(context, rounded(mib)) for context, mib in points.items()]
    at = 1
    while at < len(kept) - 1:
        (low, before), (context, mib), (high, after) = kept[at - 1 : at + 2]
        line = before + (after - before) * (context - low) / (high - low)
        if 0 <= line - mib < 0.1:
            del kept[at]
        else:
            at += 1
    return kept


def rounded(mib: float) -> float:
    """Up, to a tenth."""
    return math.ceil(mib * 10) / 10


def shapes(folder: Path) -> dict[str, list[tuple[CheckpointEntry, Path, Published]]]:
    """The files of each shape, one of each mix, the smallest first."""
    found = defaultdict[str, dict[str, tuple[CheckpointEntry, Path, Published]]](dict)
    for checkpoint, published in files():
        model = catalogue().models_by_name[checkpoint.model]
        path = file_of(folder, checkpoint, published)
        found[model.shape].setdefault(checkpoint.quant, (checkpoint, path, published))
    return {shape: sorted(by_mix.values(), key=lambda one: one[0].bytes) for shape, by_mix in found.items()}


def write(path: Path, tables: Mapping[str, Any]) -> None:
    """A line for each place."""
    blocks = []
    for shape, table in sorted(tables.items()):
        lines = ",\n".join(f"  {json.dumps(place)}: {json.dumps(curves)}" for place, curves in table.items())
        blocks.append(f"{json.dumps(shape)}: {{\n{lines}\n}}")
    text = ",\n".join(blocks)
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{{"version": "{RELEASE}", "judge": "{judge_digest()}", "shapes": {{\n{text}\n}}}}\n')


def main() -> int:
    """Asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="shapes one of whose models has this in its name")
    parser.add_argument("--again", action="store_true", help="also those that were answered")
    args = parser.parse_args()
    folder = args.folder.resolve()
    program, path = build(folder), FOLDER / f"{ENGINE}-{RELEASE}.json"
    wanted, before = shapes(folder), json.loads(path.read_text()) if path.exists() else {}
    kept = before["shapes"] if before.get("judge") == judge_digest() else {}
    kept = {shape: table for shape, table in kept.items() if shape in wanted}
    for shape, found in wanted.items():
        asked_before = shape in kept and not args.again
        if asked_before or not any(args.only in checkpoint.model for checkpoint, _, _ in found):
            continue
        began, asked = time.monotonic(), 0

        def ask(sample: Sample, batch: BatchShape) -> Sizes:
            nonlocal asked
            asked += 1
            return sample.sizes(program, batch)

        for checkpoint, model_file, published in found:
            make_if_missing(program, model_file, checkpoint, published)
        model = catalogue().models_by_name[found[0][0].model]
        every = [Sample(checkpoint, model_file, 1, model.layers) for checkpoint, model_file, _ in found]
        copies = copies_of(every if model.experts else [], ask)
        groups = defaultdict[tuple[int, bool], Group](lambda: Group([], [], [], []))
        for number, (checkpoint, model_file, _) in enumerate(found):
            for gpus in (1, GPUS) if number else (1, FEWER_GPUS, GPUS, MORE_GPUS):
                for sample in arrangements(checkpoint, model_file, gpus, copies):
                    group = groups[min(gpus, FEWER_GPUS), sample.hosted > 0]
                    one_of = {FEWER_GPUS: group.more, MORE_GPUS: group.less}.get(gpus, group.own)
                    (group.others if number else one_of).append(sample)
        table: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(dict)
        with ThreadPoolExecutor(2) as pool:
            for one in pool.map(lambda group: rows(group, ask), groups.values()):
                for (place, hosted), curves in one.items():
                    assert hosted not in table[place]
                    table[place][hosted] = curves
        kept[shape] = {"copies": copies, **{place: table[place] for place in sorted(table)}}
        print(f"{asked:5} answers in {time.monotonic() - began:4.0f} s: {found[0][0].model}", flush=True)
        write(path, kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
