"""Published checkpoints as sparse files: the true names, shapes and dtypes of their tensors, and no weights.

Shapes are those that transformers builds (shapes.json); what a scheme makes of a matrix is as `rigup.quantisation`
says, for the modules that the makers quantise. Experts that transformers keeps as one tensor are taken apart, as
published.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rigup.checkpoints.config import Config
from rigup.checkpoints.safetensors_header import DTYPE_BITS
from rigup.checkpoints.tensor import Tensor
from rigup.lab.hub.sparse_files import write_checkpoint
from rigup.quantisation import read_scheme
from rigup.quantisation.scheme import Scheme, Unquantised

# What no scheme touches, whatever its list of exclusions says.
WHOLE = frozenset(
    (
        *(
            "embed_tokens",
            "embeddings",
            "gate",
            "router",
            "conv1d",
            "weights_proj",
            "shared_expert_gate",
            "in_proj_a",
            "in_proj_ba",
        ),
        *(
            "in_proj_b",
            "visual",
            "vision_tower",
            "vision_model",
            "multi_modal_projector",
            "embed_vision",
            "A_log",
            "proj",
        ),
        *(
            "attn_hc",
            "ffn_hc",
            "hc_head",
            "compressor",
            "indexer_norm",
            "routed_expert_down_proj",
            "routed_expert_up_proj",
        ),
    )
)
MINIMAX = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
FLOAT = ("e_score_correction_bias",)
# Published with routers in float32, by the prefix of the architecture's names.
FLOAT_ROUTERS = ("minimax_m2",)


def quantisation(entry: dict[str, Any]) -> dict[str, Any] | None:
    """What a repository says of its quantisation, as rigup reads it."""
    config: dict[str, Any] = entry["config"]
    said: dict[str, Any] | None = config.get("quantization_config") or (config.get("text_config") or {}).get(
        "quantization_config"
    )
    said = said or entry.get("hf_quant_config", {}).get("quantization")
    if said and config.get("expert_dtype"):
        return {**said, "expert_dtype": config["expert_dtype"]}
    return said


def stored(shapes: list[tuple[str, tuple[int, ...]]], scheme: Scheme, kind: str = "") -> Iterator[Tensor]:
    """Every tensor of the files. kind: the model_type, for what differs between families."""
    for name, shape in shapes:
        if kind == "nemotron_h":
            name = name.replace("model.", "backbone.", 1)
        if kind in FLOAT_ROUTERS and name.endswith(".gate.weight"):
            yield _tensor(name, "F32", shape)
        elif name.rpartition(".")[2] in ("gate_up_proj", "down_proj", "up_proj") and len(shape) == 3:
            yield from _experts(name, shape, scheme, MINIMAX if kind.startswith("minimax") else {})
        elif len(shape) == 2 and name.endswith(".weight") and not WHOLE.intersection(name.split(".")):
            yield from _matrix(name.removesuffix(".weight"), shape[0], shape[1], scheme)
        else:
            yield _tensor(name, "F32" if name.endswith(FLOAT) else "I64" if "tid2eid" in name else "BF16", shape)


def _matrix(module: str, rows: int, columns: int, scheme: Scheme) -> Iterator[Tensor]:
    head = module.endswith("lm_head") and "lm_head" not in str(getattr(scheme, "layers", None))
    parts = Unquantised().stored(module, rows, columns) if head else scheme.stored(module, rows, columns)
    for part in parts:
        yield _tensor(module + part.suffix, part.dtype, part.shape)


def _experts(name: str, shape: tuple[int, ...], scheme: Scheme, names_of: dict[str, str]) -> Iterator[Tensor]:
    before, _, last = name.rpartition(".")
    if isinstance(scheme, Unquantised):
        yield _tensor(name, "BF16", shape)
        return
    if scheme.engine_name == "mxfp4":  # gpt-oss: one tensor for all experts, its last two dimensions turned
        for part in scheme.stored(name, shape[2], shape[1]):
            yield _tensor(name + part.suffix, part.dtype, (shape[0], *part.shape))
        return
    for expert in range(shape[0]):
        names = ("gate_proj", "up_proj") if last == "gate_up_proj" else (last,)
        for each in names:
            yield from _matrix(
                f"{before}.{expert}.{names_of.get(each, each)}", shape[1] // len(names), shape[2], scheme
            )


def _tensor(name: str, dtype: str, shape: tuple[int, ...]) -> Tensor:
    return Tensor(name, dtype, shape, math.prod(shape) * DTYPE_BITS[dtype] // 8)


def write(folder: Path, entry: dict[str, Any], shapes: list[tuple[str, tuple[int, ...]]], **files: str) -> None:
    """The repository: config.json, what else is given, and sparse shards."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(entry["config"]))
    if "hf_quant_config" in entry:
        (folder / "hf_quant_config.json").write_text(json.dumps(entry["hf_quant_config"]))
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    scheme = read_scheme(quantisation(entry), "published")
    tensors = stored(shapes, scheme, entry["config"]["model_type"])
    write_checkpoint(folder, tensors, shard_bytes=20_000_000_000)


def layers_of(entry: dict[str, Any]) -> int:
    """Layers of the language model."""
    return Config(entry["config"], "published").text_model.layers
