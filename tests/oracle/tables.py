"""Writes the tables of kernels from what engines answered:  python -m tests.oracle.tables"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any, NamedTuple

from rigup.catalogue.kernels import FOLDER, KernelKey
from rigup.service import EngineName
from tests.oracle.ask import RELEASES, answers_of, read_answers
from tests.oracle.matrix import Pair, pairs

NONE_FOUND = "No valid attention backend found"
# The other words by which vLLM says so, of Hy4.
NONE_VALID = "no valid sparse MLA backend is available"
# How far an answer must have come to name all kernels.
BUILT: dict[EngineName, tuple[str, ...]] = {
    "vllm": ("weights", "cache", "graphs", "ready"),
    "sglang": ("configuration", "weights", "cache"),
}
PARTS = ("attention", "linear", "experts", "sampling")


def kernels_said(row: dict[str, Any]) -> dict[str, list[str]]:
    """The kernels by part, in the order in which the engine named them; attention as layers have it, most first."""
    layers = Counter[str]()
    for stage in row.get("stages", ()):
        layers.update(stage.get("attention", {}))
    said = {**row["kernels"]["chosen"], **({"attention": [name for name, _ in layers.most_common()]} if layers else {})}
    return {part: list(said[part]) for part in PARTS if said.get(part)}


def unable(row: dict[str, Any]) -> str:
    """Why the engine has no attention for the model on the cards; "" where it has."""
    doubts = [doubt for stage in row.get("stages", ()) for doubt in stage.get("doubts", ())]
    refused = row.get("stopped", {}).get("message", "")
    return doubts[0] if doubts else next((said for said in (NONE_FOUND, NONE_VALID) if said in refused), "")


def keeps_as_planned(pair: Pair, row: dict[str, Any]) -> bool:
    """Whether the answer is to a plan with the same KV cache, on which kernels depend."""
    kept = str(row.get("settled", {}).get("kv_cache_dtype", "auto"))
    return kept.startswith("fp8") == (pair.plan.kv_cache_type == "fp8")


class Table(NamedTuple):
    """Of one release. unlike: pairs that say otherwise than one of the same kind; that part of a step is left out."""

    kernels: dict[str, Any]
    unable: dict[str, dict[str, str]]
    unlike: list[str]


def table(engine: EngineName, version: str) -> Table:
    """What the answers say, also those to earlier plans, which differed in sizes: kernels do not depend on them."""
    answers = read_answers(answers_of(engine, version))
    said: dict[KernelKey, dict[str, list[str]]] = {}
    unlike, cannot = dict[tuple[KernelKey, str], str](), dict[str, dict[str, str]]()
    for pair in pairs(engine, version, answers):
        row = answers.get(pair.name)
        if row is None or not keeps_as_planned(pair, row):
            continue
        if why := unable(row):
            cannot.setdefault(pair.kind, {})[pair.capability] = why
        if why or row["reached"] not in BUILT[engine] or not kernels_said(row):
            continue
        kernels = kernels_said(row)
        before = said.setdefault(pair.key, kernels)
        for part in PARTS:
            if before.get(part) != kernels.get(part):
                unlike[pair.key, part] = f"{pair.name}: {part} {kernels.get(part)}, elsewhere {before.get(part)}"
    found: Any = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for key, kernels in sorted(said.items()):
        alike = {part: names for part, names in kernels.items() if (key, part) not in unlike}
        found[key.kind][key.scheme][key.cache_type][key.capability] = alike
    return Table(found, cannot, list(unlike.values()))


def main() -> None:
    """Writes every release's."""
    for engine, version in ((engine, version) for engine, releases in RELEASES.items() for version in releases):
        if not answers_of(engine, version).exists():
            continue
        kernels, cannot, unlike = table(engine, version)
        lines = []
        for kind, schemes in kernels.items():
            rows = ",\n".join(f"  {json.dumps(scheme)}: {json.dumps(caches)}" for scheme, caches in schemes.items())
            lines.append(f"{json.dumps(kind)}: {{\n{rows}\n}}")
        text = ",\n".join(lines)
        FOLDER.mkdir(exist_ok=True)
        head = f'"version": "{version}", "unable": {json.dumps(cannot)}'
        (FOLDER / f"{engine}-{version}.json").write_text(f'{{{head}, "kernels": {{\n{text}\n}}}}\n')
        print(f"{engine} {version}: {len(kernels)} kinds of models", *unlike, sep="\n")


if __name__ == "__main__":
    main()
