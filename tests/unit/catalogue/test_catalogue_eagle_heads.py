"""EAGLE heads in the catalogue: as `rigup model add` would read them, and never models to serve."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.data_files import DATA
from rigup.catalogue.model import Model
from rigup.checkpoints.describe import describe
from rigup.checkpoints.repository import local_repository
from rigup.checkpoints.safetensors_header import DTYPE_BITS
from rigup.checkpoints.tensor import Tensor
from rigup.errors import InputError
from rigup.lab.hub.sparse_files import write_checkpoint
from rigup.lock import Lock
from rigup.planner.inputs.names import resolve
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.project.fit_table import fits_of
from rigup.service import Service, Speculative

CATALOGUE = load_catalogue()
KIMI, GPT_OSS = "lightseekorg/kimi-k2.6-eagle3-mla", "lmsys/EAGLE3-gpt-oss-120b-bf16"

NO_CONFIG = "neither its config.json nor the size of its files was found"
NOT_THERE = {
    "AngelSlim/Qwen3-32B_eagle3": NO_CONFIG,
    "AngelSlim/Qwen3-8B_eagle3": NO_CONFIG,
    "Inferact/MiniMax-M3-EAGLE3": "its card gives hidden size, vocabulary and 3.3B; its config.json was not found",
    "Inferact/MiniMax-M3-EAGLE3-GQA": NO_CONFIG,
    "lightseekorg/kimi-k2.7-coder-eagle3.1-mla": NO_CONFIG,
    "lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge": NO_CONFIG,
    "lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-SpecForge": "2.81 GB are listed; its config.json was not found",
    "lmsys/SGLang-EAGLE3-Qwen3-235B-A22B-Instruct-2507-SpecForge-Meituan": NO_CONFIG,
    "lmsys/SGLang-EAGLE3-Qwen3-30B-A3B-Instruct-2507-SpecForge-Nex": NO_CONFIG,
    "lmsys/SGLang-EAGLE3-Qwen3-Coder-30B-A3B-Instruct-SpecForge": NO_CONFIG,
    "lmsys/SGLang-EAGLE3-Qwen3-Coder-480B-A35B-Instruct-SpecForge-EigenAI": NO_CONFIG,
    "lmsys/SGLang-EAGLE3-Qwen3-Next-80B-A3B-Instruct-FP8-perfect-blend-regenerated": NO_CONFIG,
    "mistralai/Mistral-Small-4-119B-2603-eagle": "a recipe says two layers; its params.json was not found",
    "nvidia/gpt-oss-120b-Eagle3-v3": NO_CONFIG,
    "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3": NO_CONFIG,
    "RedHatAI/Qwen3-30B-A3B-Instruct-2507-speculator.eagle3": NO_CONFIG,
    "RedHatAI/Qwen3-32B-speculator.eagle3": NO_CONFIG,
    "RedHatAI/Qwen3-8B-speculator.eagle3": NO_CONFIG,
    "RedHatAI/Qwen3-VL-235B-A22B-Instruct-speculator.eagle3": NO_CONFIG,
    "Tengyunw/qwen3_8b_eagle3": NO_CONFIG,
    "thoughtworks/GLM-4.7-Flash-Eagle3": NO_CONFIG,
    "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B": NO_CONFIG,
    "zhuyksir/EAGLE3-gpt-oss-20b-bf16": NO_CONFIG,
}
"""Heads that the catalogue names for a model and does not have, each with the reason."""

# The keys that planning rests on, of the configurations that the entries' sources name.
CONFIGS: dict[str, dict[str, Any]] = {
    KIMI: {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "model_type": "kimi_k2",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_hidden_layers": 1,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "first_k_dense_replace": 1,
        "max_position_embeddings": 262144,
        "vocab_size": 163840,
        "draft_vocab_size": 163840,
        "tie_word_embeddings": False,
    },
    GPT_OSS: {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": 2880,
        "intermediate_size": 16384,
        "num_hidden_layers": 1,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "vocab_size": 201088,
        "draft_vocab_size": 32000,
        "tie_word_embeddings": False,
    },
}
LISTED = {KIMI: "6.03 GB", GPT_OSS: "0.9B"}
"""The size of the weights as the hub lists it: bytes, or parameters."""


def tensors(config: dict[str, Any]) -> list[Tensor]:
    """The tensors of an EAGLE-3 head: vLLM 0.33.0 models/deepseek_eagle3.py and llama_eagle3.py."""
    hidden, middle, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, drafted = config["num_attention_heads"], config["draft_vocab_size"]
    attention: dict[str, tuple[int, ...]]
    if rank := config.get("kv_lora_rank"):
        queries, rope = config["q_lora_rank"], config["qk_rope_head_dim"]
        nope, values = config["qk_nope_head_dim"], config["v_head_dim"]
        attention = {
            "q_a_proj": (queries, 2 * hidden),
            "q_a_layernorm": (queries,),
            "q_b_proj": (heads * (nope + rope), queries),
            "kv_a_proj_with_mqa": (rank + rope, 2 * hidden),
            "kv_a_layernorm": (rank,),
            "kv_b_proj": (heads * (nope + values), rank),
            "o_proj": (hidden, heads * values),
        }
    else:
        size, kept = config["head_dim"], config["num_key_value_heads"]
        attention = {
            "q_proj": (heads * size, 2 * hidden),
            "k_proj": (kept * size, 2 * hidden),
            "v_proj": (kept * size, 2 * hidden),
            "o_proj": (hidden, heads * size),
        }
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens": (vocab, hidden),
        "fc": (hidden, 3 * hidden),
        **{f"midlayer.{name}": (hidden,) for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")},
        **{f"midlayer.self_attn.{name}": shape for name, shape in attention.items()},
        **{f"midlayer.mlp.{name}": (middle, hidden) for name in ("gate_proj", "up_proj")},
        "midlayer.mlp.down_proj": (hidden, middle),
        "norm": (hidden,),
        "lm_head": (drafted, hidden),
    }
    found = [_tensor(f"{name}.weight", "BF16", shape) for name, shape in shapes.items()]
    # Which tokens of the model the head's own, fewer ones are.
    maps = [_tensor("d2t", "I64", (drafted,)), _tensor("t2d", "BOOL", (vocab,))] if drafted < vocab else []
    return found + maps


def _tensor(name: str, dtype: str, shape: tuple[int, ...]) -> Tensor:
    return Tensor(name, dtype, shape, math.prod(shape) * DTYPE_BITS[dtype] // 8)


def test_every_head_that_a_plan_names_is_there_or_has_a_reason() -> None:
    named = {repo for model in CATALOGUE.models for repo in model.eagle_heads}
    known = {entry.repo for entry in CATALOGUE.checkpoints if CATALOGUE.models_by_name[entry.model].head}
    assert known == CONFIGS.keys()
    assert named == known | NOT_THERE.keys() and not known & NOT_THERE.keys()


@pytest.mark.parametrize("repo", CONFIGS)
def test_a_head_is_as_its_files_would_be_read(tmp_path: Path, repo: str) -> None:
    config = CONFIGS[repo]
    write_checkpoint(tmp_path, tensors(config), shard_bytes=10**10)
    (tmp_path / "config.json").write_text(json.dumps(config))
    read = describe(local_repository(tmp_path, repo), None, {})
    (entry,) = (each for each in CATALOGUE.checkpoints if each.repo == repo)
    model = CATALOGUE.models_by_name[entry.model]
    apart = {"parsers", "sources"}
    assert model.model_dump(exclude=apart) == read.model.model_dump(exclude=apart)
    assert entry.tensors == read.checkpoint.tensors
    for key in ("repo", "model", "quant", "scheme", "scope"):
        assert getattr(entry, key) == getattr(read.checkpoint, key)
    assert entry.tensors is not None and entry.bytes == entry.tensors.total and not entry.bytes_exact
    assert LISTED[repo] in (f"{entry.bytes / 1e9:.2f} GB", f"{model.parameters / 1e9:.1f}B")
    assert LISTED[repo] in entry.sources["bytes"]


@pytest.mark.parametrize("repo", CONFIGS)
def test_a_head_starts_in_the_releases_that_have_its_class(repo: str) -> None:
    (entry,) = (each for each in CATALOGUE.checkpoints if each.repo == repo)
    model = CATALOGUE.models_by_name[entry.model]
    oldest = {}
    for engine in CATALOGUE.engines:
        having = [release.version for release in engine.versions if not release.lacks(model, entry)]
        if having and engine.name != "llama.cpp":
            oldest[engine.name] = having[0]
    assert entry.minimum_versions == oldest


@pytest.mark.parametrize(
    ("architecture", "head"),
    [
        ("LlamaForCausalLMEagle3", "eagle3"),
        ("Eagle3DeepseekV2ForCausalLM", "eagle3"),
        ("Eagle3Qwen2_5vlForCausalLM", "eagle3"),
        ("EagleMistralLarge3ForCausalLM", "eagle"),
        ("PEagleDraftModel", "eagle"),
        ("Eagle2_5_VLForConditionalGeneration", ""),
        ("LlamaForCausalLM", ""),
    ],
)
def test_a_head_is_told_by_its_class(architecture: str, head: str) -> None:
    some = CATALOGUE.models_by_name["SmolLM2-135M-Instruct"]
    assert some.model_copy(update={"architectures": (architecture,)}).head == head
    gguf: Model = some.model_copy(update={"architectures": (), "gguf_architecture": "eagle3"})
    assert gguf.head == "eagle3"


def test_a_head_that_a_fleet_has_added_is_one_as_well(tmp_path: Path) -> None:
    for folder in ("models", "checkpoints"):
        text = (DATA / folder / "eagle3_gpt_oss_120b.toml").read_text()
        (tmp_path / "catalogue" / folder).mkdir(parents=True)
        (tmp_path / "catalogue" / folder / "mine.toml").write_text(text.replace("EAGLE3-gpt-oss-120b", "my-head"))
    own = load_catalogue(tmp_path)
    assert own.models_by_name["my-head"].head == "eagle3"
    rig = read_rig({"gpus": "8x H200"}, "test", own)
    assert "my-head" not in {fit.model.name for fit in fits_of(rig, own, Lock())}
    with pytest.raises(InputError, match=r"services\.a\.model: my-head "):
        resolve(Service(name="a", model="my-head"), rig, own)
    drafted = Service(name="a", model="gpt-oss-120b", speculative=Speculative(kind="eagle", model="my-head"))
    assert [entry.model for entry in resolve(drafted, rig, own).drafts] == ["my-head"]


def test_no_head_is_offered_as_a_model_to_serve() -> None:
    heads = {model.name for model in CATALOGUE.models if model.head}
    assert heads and heads.isdisjoint(model.name for model in CATALOGUE.served)
    assert len(heads) + len(CATALOGUE.served) == len(CATALOGUE.models)
    fits = fits_of(read_rig({"gpus": "8x H200"}, "test", CATALOGUE), CATALOGUE, Lock())
    assert heads.isdisjoint(fit.model.name for fit in fits)
