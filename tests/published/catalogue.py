"""Writes the toolkit's catalogue of models that people run: each entry as `rigup model add` makes it.

    python -m tests.published.catalogue [MODEL...]

Each checkpoint is made as sparse files (checkpoint.py), described by the command's own code, and written to
src/rigup/catalogue/data/. What was not read from a hub says so in its source: the shapes follow the configuration, the
bytes are computed, and `rigup lock` takes the sizes of the files. GGUF: gguf.py.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.model import Model
from rigup.checkpoints.describe import describe
from rigup.checkpoints.entry_text import checkpoint_text, model_text
from rigup.checkpoints.repository import local_repository
from tests.published import gguf
from tests.published.checkpoint import write
from tests.published.collect import read_configs, read_shapes
from tests.published.models import MODELS, RECIPES, Published

DATA = Path(__file__).parents[2] / "src/rigup/catalogue/data"
COMMENT = "Written by python -m tests.published.catalogue from published configurations."
BLOCK_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
CHANNEL_FP8 = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head", "re:.*mlp\\.gate$"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "float",
                "strategy": "token",
                "symmetric": True,
                "dynamic": True,
            },
        }
    },
}
NEXT_FP8 = {
    **BLOCK_FP8,
    "modules_to_not_convert": [f"model.layers.{n}.linear_attn.in_proj_ba" for n in range(48) if n % 4 != 3],
}
ASSUMED: dict[str, dict[str, Any]] = {
    "fp8": BLOCK_FP8,
    "fp8_next": NEXT_FP8,
    "fp8_channel": CHANNEL_FP8,
    "fp8_tensor": {"quant_method": "fp8", "activation_scheme": "static"},
    "mxfp8": {"quant_method": "modelopt", "quant_algo": "MXFP8"},
}
ASSUMED_WHY = {
    "fp8_next": "assumed for fp8, without in_proj_ba, whose 64 rows on two ranks are not whole blocks",
    "fp8_channel": "assumed: scales per channel, as in SGLang 0.5.23's tuned kernels of its shape, E=161,N=192 with "
    "per_channel_quant; 192 columns are not whole blocks of 128",
}
FILES = re.compile(r"headers of (\d+ files|model\.safetensors)")

CONFIGS, SHAPES = read_configs(), read_shapes()
MAKERS: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "makers.toml").read_text())
UNKNOWN = {"license": "no licence", "sampling": "no advice on sampling"}


def configuration(published: Published, stored_as: str) -> dict[str, Any]:
    """Of a checkpoint: "config", and "hf_quant_config" where its repository has one."""
    entry: dict[str, Any] = {"config": {**CONFIGS[published.config]["config"]}}
    of = CONFIGS.get(stored_as)
    entry["config"].pop("quantization_config", None)
    draft = {"num_nextn_predict_layers": published.draft_layers} if published.draft_layers else {}
    if of is not None:
        entry |= {key: value for key, value in of.items() if key != "source"}
    elif stored_as in ASSUMED:
        entry["config"]["quantization_config"] = ASSUMED[stored_as]
    entry["config"] = {**entry["config"], **draft}
    if "text_config" in entry["config"]:
        entry["config"]["text_config"] = {**entry["config"]["text_config"], **draft}
    return entry


def safetensors(published: Published, repo: str, stored_as: str) -> tuple[Model, CheckpointEntry]:
    """One checkpoint, through the command's own code."""
    entry, of = configuration(published, stored_as), CONFIGS.get(stored_as)
    assumed = ASSUMED.get(stored_as)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / repo.rpartition("/")[2]
        write(path, entry, SHAPES[published.shapes])
        label = f"{CONFIGS[published.config]['source']}; shapes by transformers 5.23.0"
        repository = replace(local_repository(path, repo), label=label, where=repo)
        found = describe(repository, None, {}, published.name)
    told = of["source"] if of else ASSUMED_WHY.get(stored_as, f"assumed for {stored_as}") if assumed else "unquantised"
    checkpoint = found.checkpoint if of else found.checkpoint.model_copy(update={"kv_cache_type": None})
    return found.model, completed(published, repo, checkpoint, f"computed from the shapes, stored as: {told}")


def completed(published: Published, repo: str, entry: CheckpointEntry, computed: str) -> CheckpointEntry:
    """The entry with draft layers, what is published of its size, and true sources."""
    table, size = entry.tensors, entry.bytes
    assert table is not None
    if published.draft:
        draft = published.draft * (1 if entry.scheme.startswith(("fp8", "mxfp8")) else 2)
        table, size = table.model_copy(update={"mtp": draft}), size + draft
    known = published.bytes.get(repo)
    ggml = entry.scheme == "gguf"
    told = gguf.size_source(published, entry.quant) if ggml else ""
    why = known[1] if known else f"{told or computed}; rigup lock takes the sizes of the files"
    oldest = f"{RECIPES} and SGLang's wheels; not below the oldest release that rigup supports"
    versions = {"llama.cpp": "b11434"} if ggml else published.versions
    return entry.model_copy(
        update={
            "tensors": table,
            "bytes": known[0] if known else size,
            "bytes_exact": bool(known),
            "shards": None,
            "entry": "",
            "minimum_versions": versions,
            "engine_flags": {} if ggml else published.flags,
            "mistral_class": "" if ggml else published.mistral_class,
            "notes": published.notes,
            "sources": {
                "bytes": why,
                "tensors": computed,
                **({"kv_cache_type": computed.partition("stored as: ")[2]} if entry.kv_cache_type else {}),
                "minimum_versions": "the release that rigup supports" if ggml else oldest,
                **({"mistral_class": published.mistral_source} if published.mistral_class and not ggml else {}),
            },
        }
    )


def gguf_entry(published: Published, quant: str) -> CheckpointEntry:
    """One quantisation in GGUF."""
    entry, how = gguf.entry_of(published, quant)
    return completed(replace(published, draft=0), published.gguf, entry, how)


def said_by_maker(model: Model) -> Model:
    """The model with its licence, sampling, template flags and notes; what no source tells is said to be missing."""
    said = MAKERS[model.name]
    sources = {key: text.replace("hf/", "huggingface.co/") for key, text in said["sources"].items()}
    absent = [what for key, what in UNKNOWN.items() if key not in said]
    notes = (*said.get("notes", ()), *([f"{' and '.join(absent)} found in public sources"] if absent else ()))
    fields = {**model.model_dump(mode="json"), **said, "notes": notes, "sources": {**model.sources, **sources}}
    return Model.model_validate_json(json.dumps(fields))


def main(names: list[str]) -> None:
    """Writes every file, or those of the models named."""
    for published in MODELS:
        if names and published.name not in names:
            continue
        pairs = [safetensors(published, repo, kind) for repo, kind in published.checkpoints.items()]
        model = pairs[0][0]
        if published.by_hand:
            model = load_catalogue().models_by_name[published.name]
        entries = [entry for _, entry in pairs]
        if published.gguf:
            entries += [gguf_entry(published, quant) for quant in gguf.quants_of(published)]
        stem = published.name.lower().replace(".", "_").replace("-", "_")
        if published.by_hand:
            write_checkpoints(entries, model, f"{stem}_computed")
            continue
        update: dict[str, Any] = {}
        sources = model.sources
        if published.gguf_architecture:
            update["gguf_architecture"] = published.gguf_architecture
            sources = {**sources, "gguf_architecture": "names in xllamacpp 2026.10.11549"}
        if published.draft_source:
            sources = {**sources, "mtp_attention": published.draft_source}
        if published.also_known_as:
            update["architectures"] = (*model.architectures, *published.also_known_as)
        if published.context:
            update["context"] = published.context
            sources["context"] = published.context_source
        widest = max(entry.bytes * 8 / model.parameters for entry in (pair[1] for pair in pairs))
        update["reference_bits"] = 16 if widest > 12 else 8 if widest > 7 else 4.5
        sources = {key: FILES.sub("sum over the tensors", text) for key, text in sources.items()}
        model = said_by_maker(model.model_copy(update={**update, "sources": sources}))
        (DATA / "models" / f"{stem}.toml").write_text(model_text(model, COMMENT))
        write_checkpoints(entries, model, stem)


def write_checkpoints(entries: list[CheckpointEntry], model: Model, stem: str) -> None:
    """One file with the checkpoints of a model."""
    texts = [checkpoint_text(entry.model_copy(update={"model": model.name}), COMMENT) for entry in entries]
    whole = "\n".join([texts[0], *(text.partition("\n\n")[2] for text in texts[1:])])
    (DATA / "checkpoints" / f"{stem}.toml").write_text(whole)
    print(f"{model.name}: {len(entries)} checkpoints")


if __name__ == "__main__":
    main(sys.argv[1:])
