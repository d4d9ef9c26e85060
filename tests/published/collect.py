"""Collects what published checkpoints look like, for tests and for the catalogue: configurations, and true tensors.

    python -m tests.published.collect configs FOLDER        a folder of config.json files, with SOURCES.md
    python -m tests.published.collect defaults REPO=MODEL_TYPE...
    python -m tests.published.collect classes
    python -m tests.published.collect shapes FOLDER REPO...  with transformers and a CPU build of PyTorch at hand

`configs` keeps of each configuration what a reader of it asks for, and of SOURCES.md where the file is from. `shapes`
builds each model on PyTorch's meta device, without weights, and keeps the name and shape of every tensor. Numbers in
names are written as ranges, so that a thousand layers are one line.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from rigup.layer_range import layer_numbers, layers_text

HERE = Path(__file__).parent
CONFIGS, SHAPES = HERE / "configs.json", HERE / "shapes.json"
CLASS_DEFAULTS = HERE.parents[1] / "src/rigup/catalogue/data/class_defaults.json"
LONGEST_PATTERN = 12
NUMBER = re.compile(r"(?<=[._])\d+(?=[.*]|$)")
# What neither rigup nor an engine's own code asks for: training and generation.
DROPPED = re.compile(
    r".*(dropout|initializer|label|auto_map|transformers_version|pruned_heads|torchscript|problem_type|_name_or_path"
    r"|bad_words|diversity|do_sample|early_stop|typical|finetuning|return_dict|repetition|min_length|max_length|ngram|id2"
    r"|use_cache|output_(hidden|attentions)|beam|length_penalty|temperature|top_[kp]$|forced_|sep_token_id|decoder_start"
    r"|cross_attention|time_step_limit|is_(en|de)coder|tie_encoder|use_bfloat16|prefix$|exponential_decay|encoder_no).*"
)
CLASSES = {"step3p7": "Step3p7ForConditionalGeneration", "deepseek_v3": "DeepseekV3ForCausalLM"}
# Keys of shapes: kept where they are null, and read from the fields of transformers' classes.
_SHAPES = (
    "num_hidden_layers hidden_size num_attention_heads num_key_value_heads head_dim v_head_dim vocab_size "
    "intermediate_size intermediate_size_mlp max_position_embeddings sliding_window use_sliding_window "
    "attention_chunk_size no_rope_layer_interval global_head_dim num_global_key_value_heads attention_k_eq_v "
    "num_kv_shared_layers full_attention_interval linear_num_key_heads linear_num_value_heads linear_key_head_dim "
    "linear_value_head_dim linear_conv_kernel_dim kv_lora_rank q_lora_rank qk_nope_head_dim qk_rope_head_dim "
    "n_routed_experts num_local_experts num_experts moe_num_experts num_experts_per_tok num_experts_per_token "
    "top_k_experts experts_per_token moe_topk moe_intermediate_size shared_expert_intermediate_size "
    "n_shared_experts num_shared_experts first_k_dense_replace decoder_sparse_step interleave_moe_layer_step "
    "enable_moe_block"
)
SHAPE_KEYS = frozenset(_SHAPES.split())


def folded(names: list[str]) -> list[str]:
    """Names that differ in one number as one: "layers.{0-60}.mlp.gate"."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    plain = []
    for name in names:
        found = NUMBER.search(name)
        if found is None or name.startswith("re:"):
            plain.append(name)
        else:
            groups[name[: found.start()], name[found.end() :]].append(int(found[0]))
    return plain + [f"{before}{{{layers_text(set(n))}}}{after}" for (before, after), n in groups.items()]


def unfolded(names: list[str]) -> list[str]:
    """The names again."""
    found = []
    for name in names:
        before, brace, rest = name.partition("{")
        numbers, _, after = rest.partition("}")
        found += (
            [f"{before}{n}{after}" for n in layer_numbers(numbers)] if brace and not name.startswith("re:") else [name]
        )
    return found


def kept(value: Any) -> Any:
    """A configuration without what nobody asks for, its lists of names folded."""
    if isinstance(value, dict):
        return {
            key: kept(part)
            for key, part in value.items()
            if not DROPPED.fullmatch(key) and (part is not None or key in SHAPE_KEYS)
        }
    if isinstance(value, list) and len(value) > 20 and all(isinstance(part, str) for part in value):
        return {"names": folded(value)} if "." in value[0] + value[-1] else value
    if isinstance(value, float) and value in (float("inf"),):
        return "Infinity"
    return [kept(part) for part in value] if isinstance(value, list) else value


def whole(value: Any) -> Any:
    """The configuration again, its lists of names unfolded."""
    if isinstance(value, dict):
        if set(value) == {"names"}:
            return unfolded(value["names"])
        return {key: whole(part) for key, part in value.items()}
    return [whole(part) for part in value] if isinstance(value, list) else value


def configs(folder: Path) -> None:
    """Writes configs.json: by repository its config.json, its hf_quant_config.json, and where they are from."""
    lines = (folder / "SOURCES.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ", 1) for line in lines if line.startswith("| ")]
    sources = {row[0]: row[1] for row in rows if len(row) == 2}
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        name = path.name.removesuffix(".json")
        repo = name.removesuffix(".hf_quant_config").replace("__", "/")
        said = json.loads(path.read_text())
        layers = said.get("quantization", {}).get("quantized_layers") if isinstance(said, dict) else None
        if layers:
            said["quantization"]["quantized_layers"] = {"by_kind": by_kind(layers)}
        inner = said.get("quantization_config") or {}
        if isinstance(inner.get("quantized_layers"), dict):
            inner["quantized_layers"] = {"by_kind": by_kind(inner["quantized_layers"])}
        key = "hf_quant_config" if name.endswith(".hf_quant_config") else "config"
        found.setdefault(repo, {})[key] = kept(said)
        found[repo].setdefault("source", re.sub(r"aic-core/src/aiconfigurator_core/", "", sources.get(path.name, "")))
    _write(CONFIGS, found)


def by_kind(layers: dict[str, Any]) -> dict[str, list[str]]:
    """The modules of each kind of quantisation."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name, rule in layers.items():
        kinds[json.dumps(rule, sort_keys=True)].append(name)
    return {kind: folded(folded(names)) for kind, names in kinds.items()}


@cache
def read_configs() -> dict[str, dict[str, Any]]:
    """configs.json, each configuration as its repository has it, as far as it was kept; not to be changed."""
    found: dict[str, dict[str, Any]] = json.loads(CONFIGS.read_text())
    for entry in found.values():
        for key in ("config", "hf_quant_config"):
            if key in entry:
                entry[key] = whole(_with_layers(entry[key]))
    return found


def _with_layers(said: dict[str, Any]) -> dict[str, Any]:
    for table in (said.get("quantization"), said.get("quantization_config")):
        layers = table.get("quantized_layers") if table else None
        if table and layers and "by_kind" in layers:
            table["quantized_layers"] = {
                name: json.loads(kind)
                for kind, names in layers["by_kind"].items()
                for name in unfolded(unfolded(names))
            }
    return said


def tensors_of(repo: str, config: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Every stored tensor of a model that transformers builds on the meta device."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if config["model_type"] == "kimi_k3":
        return _kimi_k3(config["text_config"])
    if (
        config["model_type"] == "minimax_m3"
    ):  # the text model of transformers' class, which says its sizes in its own way
        config = {**config, "model_type": "minimax_m3_vl_text", "architectures": ["MiniMaxM3VLForCausalLM"]}
        return [row for name, shape in tensors_of("", config) for row in _as_minimax_names(name, shape)]
    if config["model_type"] == "kimi_k25":  # transformers has the vision model alone; its text is DeepSeek V3's
        config = {**config["text_config"], "model_type": "deepseek_v3"}
    said = {key: value for key, value in config.items() if key not in ("quantization_config", "auto_map")}
    if isinstance(said.get("text_config"), dict):
        said["text_config"] = {k: v for k, v in said["text_config"].items() if k != "quantization_config"}
    described = CONFIG_MAPPING[said["model_type"]].from_dict(said)
    kind = getattr(transformers, CLASSES.get(said["model_type"], said["architectures"][0]))
    with torch.device("meta"):
        model = kind._from_config(described)
    shared: dict[int, str] = {}
    twice = {
        name
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if shared.setdefault(id(parameter), name) != name
    }
    return [(name, tuple(value.shape)) for name, value in model.state_dict().items() if name not in twice]


def _as_minimax_names(name: str, shape: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """A tensor of transformers' MiniMax M3 as the maker's files have it, whose names lists of quantised modules use."""
    name = f"language_model.{name}".replace("self_attn.indexer.", "self_attn.index_")
    if ".mlp.gate." in name or "experts" in name:
        name = name.replace(".mlp.", ".block_sparse_moe.")
    if not name.endswith("gate_up_proj.weight"):
        return [(name, shape)]
    half = (shape[0] // 2, *shape[1:])
    return [(name.replace("gate_up_proj", part), half) for part in ("gate_proj", "up_proj")]


def _kimi_k3(config: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Kimi K3's language model: transformers' Kimi Linear with what SGLang 0.5.23 models/kimi_k3.py has besides.

    Experts work on a narrower vector; the gate of linear layers has full rank; latent layers have a gate.
    """
    hidden, narrow = config["hidden_size"], config["routed_expert_hidden_size"]
    heads, width = config["num_attention_heads"], config["v_head_dim"]
    plain = {**config, "hidden_act": "silu", "model_type": "kimi_linear", "architectures": ["KimiLinearForCausalLM"]}
    found = []
    for name, shape in tensors_of("", plain):
        before, _, last = name.removesuffix(".weight").rpartition(".")
        if ".experts." in name:
            found.append((name, tuple(narrow if size == hidden else size for size in shape)))
        elif last == "g_a_proj":
            found.append((f"{before}.g_proj.weight", (heads * width, hidden)))
        elif last != "g_b_proj":
            found.append((name, shape))
        if last == "q_a_proj":
            found.append((f"{before}.g_proj.weight", (heads * width, hidden)))
        if last == "gate":
            down, up = f"{before}.routed_expert_down_proj.weight", f"{before}.routed_expert_up_proj.weight"
            found += [
                (down, (narrow, hidden)),
                (up, (hidden, narrow)),
                (f"{before}.routed_expert_norm.weight", (narrow,)),
            ]
    return found


def shapes(folder: Path, repos: list[str]) -> None:
    """Writes shapes.json: by repository, [name, [layers], shape]; tensors of one shape and name as one."""
    found: dict[str, Any] = json.loads(SHAPES.read_text()) if SHAPES.exists() else {}
    for repo in repos:
        config = json.loads((folder / f"{repo.replace('/', '__')}.json").read_text())
        found[repo] = rows_of(tensors_of(repo, config))
    _write(SHAPES, dict(sorted(found.items())))


def rows_of(tensors: list[tuple[str, tuple[int, ...]]]) -> list[list[Any]]:
    """[name, layers, shape] of tensors; equal ones of several layers are one row."""
    groups: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
    for name, shape in tensors:
        number = NUMBER.search(name)
        key = f"{name[: number.start()]}{{}}{name[number.end() :]}" if number else name
        groups[key, shape].append(int(number[0]) if number else 0)
    return [[name, layers_text(n) if "{}" in name else "", list(s)] for (name, s), n in groups.items()]


def _write(path: Path, found: dict[str, Any]) -> None:
    text = ",\n".join(f"{json.dumps(repo)}: {json.dumps(entry)}" for repo, entry in found.items())
    path.write_text(f"{{\n{text}\n}}\n")


def read_shapes() -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """shapes.json: by repository, every tensor's name and shape."""
    found: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for repo, rows in json.loads(SHAPES.read_text()).items():
        names = [(name.replace("{}", str(n)), tuple(s)) for name, layers, s in rows for n in _numbers(layers)]
        found[repo] = names
    return found


def _numbers(layers: str) -> tuple[int, ...]:
    return layer_numbers(layers) if layers else (0,)


def defaults(pairs: list[str]) -> None:
    """Adds to both files models whose configuration nobody has stored: REPO=MODEL_TYPE, as the class has it."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    found = json.loads(CONFIGS.read_text())
    shapes_found: dict[str, Any] = json.loads(SHAPES.read_text())
    for pair in pairs:
        repo, _, kind = pair.partition("=")
        config = json.loads(CONFIG_MAPPING[kind]().to_json_string(use_diff=False))
        config["architectures"] = [_class_of(kind)]
        found[repo] = {"config": kept(config), "source": f"transformers 5.23.0: defaults of {kind}"}
        shapes_found[repo] = rows_of(tensors_of(repo, config))
    _write(CONFIGS, found)
    _write(SHAPES, dict(sorted(shapes_found.items())))


def classes() -> None:
    """Writes what transformers' classes take for shapes that a configuration leaves out, to the toolkit's data."""
    import dataclasses

    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    lines = []
    for kind in sorted(CONFIG_MAPPING):
        made = CONFIG_MAPPING[kind]
        fields = {one.name: one.default for one in dataclasses.fields(made)}
        if "num_hidden_layers" not in fields or not {"num_key_value_heads", "kv_lora_rank"} & fields.keys():
            continue
        found = {key: fields[key] for key in sorted(SHAPE_KEYS) if type(fields.get(key)) in (int, bool)}
        found |= _windows(made) if "layer_types" in fields else {}
        lines.append(f"{json.dumps(kind)}: {json.dumps(found)}")
    source = json.dumps("transformers 5.23.0, the fields of its configuration classes")
    CLASS_DEFAULTS.write_text(f'{{"source": {source}, "classes": {{\n' + ",\n".join(lines) + "\n}}\n")


def _windows(made: Any) -> dict[str, int | bool]:
    """The pattern of windows that a class makes of itself: every n-th layer is full, or one of its own."""
    try:
        types = tuple(made(num_hidden_layers=2 * LONGEST_PATTERN).layer_types or ())
    except (TypeError, ValueError, AttributeError):
        return {}
    if "sliding_attention" not in types or set(types) == {"sliding_attention"}:
        return {}
    for every in range(2, LONGEST_PATTERN + 1):
        wanted = ["sliding_attention" if (n + 1) % every else "full_attention" for n in range(len(types))]
        if list(types) == wanted:
            return {"sliding_window_pattern": every}
    return {"has_own_layer_types": True}


def _class_of(kind: str) -> str:
    import transformers

    wanted = kind.replace("_", "")
    ends = (f"{wanted}forcausallm", f"{wanted}forconditionalgeneration")
    return next(name for name in dir(transformers) if name.lower() in ends)


if __name__ == "__main__":
    if sys.argv[1] == "defaults":
        defaults(sys.argv[2:])
    elif sys.argv[1] == "classes":
        classes()
    elif sys.argv[1] == "configs":
        configs(Path(sys.argv[2]))
    else:
        shapes(Path(sys.argv[2]), sys.argv[3:])
