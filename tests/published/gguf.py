"""GGUF files of published models: the type of each tensor by the rules of llama-quantize, and published sizes.

A mix of llama-quantize's own follows from the shapes. What a publisher makes of one ("UD-Q4_K_XL") keeps the shares of
the mix that it is made from, in proportion to its published size (gguf_sizes.json).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.checkpoints.config import Config
from rigup.checkpoints.facts import is_tied
from rigup.checkpoints.part_sums import sums_of, tensor_bytes
from rigup.checkpoints.places import place_of
from rigup.checkpoints.tensor import Tensor
from rigup.quantisation.ggml_types import GGML_TYPES
from rigup.quantisation.gguf import Gguf
from rigup.units import GIB
from tests.published.checkpoint import layers_of
from tests.published.collect import read_configs, read_shapes
from tests.published.models import Published

TYPES = {kind.name: kind for kind in GGML_TYPES.values()}
# What a repository is looked through for, finest first: of the names in one row, the first that it has.
LADDER = (
    ("BF16",),
    ("Q8_0",),
    ("Q6_K", "UD-Q6_K"),
    ("UD-Q5_K_XL",),
    ("Q5_K_M", "UD-Q5_K_M"),
    ("UD-Q4_K_XL",),
    ("Q4_K_M", "UD-Q4_K_M"),
    ("IQ4_XS", "UD-IQ4_XS"),
    ("UD-Q3_K_XL",),
    ("UD-IQ3_XXS",),
    ("UD-Q2_K_XL",),
    ("UD-IQ2_M",),
)
EXACT_MIXES = ("BF16", "Q8_0")
"""What no publisher changes: sizes computed from the shapes are the files' own, but for their metadata."""
SCALED = "; in proportion to the published size"
"""In the source of what a publisher changed."""
ROUNDED = 0.06
"""GiB that a size may be off which is published with one decimal."""
# Matrices that llama-quantize leaves as the converter wrote them, in BF16, and that it gives Q8_0 in any mix: those of
# GLM-5.3-Flash. Source: src/llama-quant.cpp of b11434, tensor_allows_quantization and llama_tensor_get_type.
KEPT = {
    "glm5-next": {
        "BF16": r"\.(kv_a_proj_with_mqa|kv_b_proj|[fg]_[ab]_proj|b_proj|wq_b|wk|weights_proj)\.weight$|compress_gate$",
        "Q8_0": r"\.q_[ab]_proj\.weight$",
    },
}
# Written in float32, and left so, as MiniMax's indexer is.
EXACT = ("conv1d", "bias", "index_q_proj", "index_k_proj")
# What llama-quantize takes for rows that are not whole blocks: src/llama-quant.cpp of b11434, tensor_type_fallback.
SMALLER_BLOCKS = {
    "Q2_K": "IQ4_NL",
    "Q3_K": "IQ4_NL",
    "IQ2_S": "IQ4_NL",
    "IQ3_XXS": "IQ4_NL",
    "IQ3_S": "IQ4_NL",
    "IQ4_XS": "IQ4_NL",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}


class Mix(NamedTuple):
    """What llama-quantize gives the tensors of one mix: most of them, the head, the embeddings, and those with more.

    more: values and the way down of some layers, "" for no such layers.
    """

    most: str
    head: str = "Q6_K"
    embedding: str = ""
    more: str = ""


# src/llama-quant.cpp of b11434, llama_tensor_get_type_impl, with an importance matrix.
MIXES = {
    "Q6_K": Mix("Q6_K"),
    "Q5_K_M": Mix("Q5_K", more="Q6_K"),
    "Q4_K_M": Mix("Q4_K", more="Q6_K"),
    "IQ4_XS": Mix("IQ4_XS"),
    "Q3_K_M": Mix("Q3_K", more="Q5_K"),
    "IQ3_XXS": Mix("IQ3_XXS", "Q5_K", "IQ3_S"),
    "Q2_K": Mix("Q2_K", more="Q3_K"),
    "IQ2_M": Mix("IQ2_S", "Q5_K", "IQ3_S"),
}


class Size(NamedTuple):
    """Of a file, as published: bytes, or GiB as text where they were rounded."""

    said: int | str
    source: str

    @property
    def bytes(self) -> int:
        """As far as it is known."""
        return self.said if isinstance(self.said, int) else round(float(self.said.split()[0]) * GIB)

    @property
    def text(self) -> str:
        """With where it is from."""
        return f"{self.source}: {self.said if isinstance(self.said, str) else f'{self.said:,} bytes'}"


@cache
def sizes(repo: str) -> dict[str, Size]:
    """By mix, those of a repository. gguf_sizes.json: by repository, by source, by mix."""
    found: dict[str, dict[str, dict[str, Any]]] = json.loads((Path(__file__).parent / "gguf_sizes.json").read_text())
    return {mix: Size(said, source) for source, mixes in found.get(repo, {}).items() for mix, said in mixes.items()}


def quants_of(published: Published) -> tuple[str, ...]:
    """What the catalogue has of a repository: what it was seen to hold, or what the model's own entry says."""
    held = sizes(published.gguf)
    if published.quants or not held:
        return published.quants or ("BF16", "Q8_0", "Q4_K_M")
    rungs = (next((name for name in names if name in held), names[0]) for names in LADDER)
    return tuple(name for name in rungs if name in held or name in EXACT_MIXES)


def basis_of(quant: str) -> str:
    """The mix of llama-quantize's that a publisher's is made from: "UD-Q4_K_XL" from Q4_K_M."""
    return re.sub(r"_X?L$", "_M", quant.removeprefix("UD-")).replace("Q2_K_M", "Q2_K").replace("Q6_K_M", "Q6_K")


def entry_of(published: Published, quant: str) -> tuple[CheckpointEntry, str]:
    """One quantisation, and how its tensors were found."""
    config_entry = read_configs()[published.config]
    config = Config(config_entry["config"], published.config)
    layers, tied = layers_of(config_entry), is_tied(config)
    quant, _, kind = quant.partition("=")
    mix = kind or basis_of(quant)
    kept = KEPT.get(published.gguf_architecture, {})
    tensors = list(tensors_of(read_shapes()[published.shapes], layers, mix, tied, published.experts, kept))
    table = tensor_bytes(sums_of(published.gguf, tensors, layers, Gguf(), tied=False))
    said = f"{mix}, experts in {published.experts}," if published.experts else mix
    how = f"computed from the shapes: {said} by the rules of llama.cpp b11434, src/llama-quant.cpp"
    size = sizes(published.gguf).get(quant)
    drafts = published.gguf_draft * published.draft
    extra = round(drafts * table.total / sum(math.prod(tensor.shape) for tensor in tensors))
    if size and quant not in EXACT_MIXES and abs(table.total + extra - size.bytes) > ROUNDED * GIB:
        table = table.scaled(size.bytes - extra)
        how += SCALED
    if extra:
        table = table.model_copy(update={"mtp": extra})
    elif published.draft:
        how += "; without draft layers, which a file may have or lack (llama.cpp pull request 25641)"
    found = CheckpointEntry(
        repo=published.gguf, model=published.name, quant=quant, scheme="gguf", bytes=table.total, tensors=table
    )
    return found, how


def size_source(published: Published, quant: str) -> str:
    """Where a size was published; "" for one that is computed."""
    size = sizes(published.gguf).get(quant)
    return size.text if size and quant not in EXACT_MIXES else ""


def tensors_of(
    shapes: list[tuple[str, tuple[int, ...]]],
    layers: int,
    quant: str,
    tied: bool,
    experts: str = "",
    kept: dict[str, str] | None = None,
) -> Iterator[Tensor]:
    """Tensors with the types of a quantisation. Vision goes to a file of its own and is left out.

    A row that is not whole blocks takes the next type with smaller blocks. kept: patterns of those of a type of their
    own, in mixes of fewer bits.
    """
    for name, shape in shapes:
        place = place_of(name, layers)
        elements = math.prod(shape)
        if place.part == "vision":
            continue
        kind = _type(name, place, layers, quant, tied)
        if (
            len(shape) == 1
            or place.part in ("router", "norms")
            or any(part in name for part in ("conv1d", "bias", *EXACT))
        ):
            kind = "F32"
        elif of_its_own := [own for own, pattern in (kept or {}).items() if re.search(pattern, name)]:
            kind = of_its_own[0] if quant != "BF16" else quant
        elif place.part == "experts" and experts and "bias" not in name:
            kind = experts
        block = TYPES[kind]
        if shape and shape[-1] % block.elements:
            block = TYPES[SMALLER_BLOCKS.get(kind, kind)]
            block = block if shape[-1] % block.elements == 0 else TYPES["F16"]
        # llama.cpp's converter writes the halves of gate_up_proj as two tensors, unless told to fuse them.
        halves = 2 if place.part == "experts" and "gate_up_proj" in name and "bias" not in name else 1
        for _ in range(halves):
            yield Tensor(name, block.name, shape, elements // halves // block.elements * block.bytes)


def _type(name: str, place: Any, layers: int, quant: str, tied: bool) -> str:
    mix = MIXES.get(quant)
    if mix is None:
        return quant
    if place.part == "head" or (tied and place.part == "embedding"):
        return mix.head
    if place.part == "embedding":
        return mix.embedding or mix.most
    number = place.layer or 0
    more = number < layers // 8 or number >= 7 * layers // 8 or (number - layers // 8) % 3 == 2
    wanted = mix.more and more and any(part in name for part in ("v_proj", "in_proj_qkv.", "down_proj"))
    return mix.more if wanted else mix.most
