"""Real configurations and real shapes: every one is read or refused, and the figures are the published ones.

Counts of weights and bytes of KV cache: sums over the tensors of each config, checked against what the makers publish
(vllm-project/recipes, model cards); figures without norms, biases and small vectors, which are the difference allowed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

from rigup.attention.attention_class import Storage
from rigup.catalogue.catalogue import load_catalogue
from rigup.checkpoints.config import Config
from rigup.checkpoints.facts import Extras, Origin, allows_commerce, is_tied, model_of
from rigup.checkpoints.layers import read_draft_layers, read_layers
from rigup.checkpoints.mixture import mixture
from rigup.checkpoints.part_sums import CheckpointSums, sums_of, tensor_bytes
from rigup.checkpoints.tensor import Tensor
from rigup.errors import InputError
from rigup.quantisation import read_scheme
from rigup.quantisation.gguf import Gguf
from tests.published.checkpoint import layers_of, quantisation, stored
from tests.published.collect import read_configs, read_shapes

CONFIGS, SHAPES = read_configs(), read_shapes()
CATALOGUE = load_catalogue()
REFUSED = {
    "ibm-granite/granite-4.0-h-small.partial": "layer_types: missing; rigup cannot tell which layers keep a state",
    "moonshotai/Kimi-Linear-48B-A3B-Instruct.partial": "linear_attn_config: num_heads: missing",
}
# weights of the matrices, weights that a token goes through, bytes of full layers' KV a token in bf16, norms apart
PUBLISHED = {
    "Qwen/Qwen3.5-122B-A10B": (122_111_222_784, 9_007_997_952, 24_576),
    "Qwen/Qwen3.5-397B-A17B": (396_345_847_040, 16_331_173_120, 30_720),
    "Qwen/Qwen3.6-35B-A3B": (34_660_439_680, 2_946_176_640, 20_480),
    "Qwen/Qwen3.5-27B": (26_895_329_792, 25_623_931_392, 65_536),
    "Qwen/Qwen3-235B-A22B": (235_092_836_352, 21_567_635_456, 192_512),
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": (480_154_091_520, 34_540_486_656, 253_952),
    "openai/gpt-oss-120b": (116_788_838_400, 5_131_100_160, 36_864),
    "openai/gpt-oss-20b": (20_907_786_240, 3_607_142_400, 24_576),
    "MiniMaxAI/MiniMax-M2.7": (228_688_920_576, 10_415_112_192, 253_952),
    "zai-org/GLM-4.7-FP8": (352_795_525_120, 32_854_016_000, 376_832),
    "meta-llama/Llama-3.1-70B-Instruct": (70_552_387_584, 69_501_714_432, 327_680),
    "nvidia/Gemma-4-31B-IT-NVFP4": (30_696_013_824, 30_696_013_824, 81_920),
    "google/gemma-4-26B-A4B": (25_232_441_344, 3_821_830_144, 20_480),
    "deepseek-ai/DeepSeek-V3.2": (671_876_907_008, 37_476_106_240, 70_272),
    "zai-org/GLM-5.2": (743_375_831_040, 40_297_758_720, 89_856),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (120_667_913_216, 12_232_571_904, 8_192),
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": (549_307_191_296, 54_983_299_072, 12_288),
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": (31_577_653_568, 3_227_468_096, 6_144),
    "XiaomiMiMo/MiMo-V2-Flash": (308_778_369_024, 14_820_573_184, 23_040),
}
SMALL = 0.0004  # of the weights are norms, biases, convolutions and the like


@lru_cache
def sums(repo: str, shapes: str = "") -> CheckpointSums:
    entry = CONFIGS[repo]
    scheme = read_scheme(quantisation(entry), repo)
    tensors = stored(SHAPES[shapes or repo], scheme, entry["config"]["model_type"])
    return sums_of(repo, tensors, layers_of(entry), scheme, is_tied(Config(entry["config"], repo)))


@pytest.mark.parametrize("repo", [repo for repo, entry in CONFIGS.items() if "config" in entry])
def test_every_configuration_is_read_or_refused(repo: str) -> None:
    config = Config(CONFIGS[repo]["config"], repo)
    text = config.text_model

    def read() -> Any:
        read_scheme(quantisation(CONFIGS[repo]), repo)
        return read_layers(text), mixture(text), text.number("max_position_embeddings"), text.number("vocab_size")

    if repo in REFUSED:
        with pytest.raises(InputError) as error:
            read()
        assert error.value.message == f"{repo}: {REFUSED[repo]}"
        return
    attention, *_ = read()
    assert sorted(number for entry in attention for number in entry.layers) == list(range(text.layers))


@pytest.mark.parametrize("repo", PUBLISHED)
def test_weights_and_cache_are_as_published(repo: str) -> None:
    weights, active, kv = PUBLISHED[repo]
    model = model_of(
        repo.rpartition("/")[2], Config(CONFIGS[repo]["config"], repo), sums(repo), Origin(""), "", Extras(), {}
    )
    assert 0 <= model.parameters - weights < SMALL * weights
    assert model.active_parameters == pytest.approx(active, rel=SMALL)
    caches = [
        (cache.token_bytes, len(entry.layers))
        for entry in model.attention
        for cache in entry.caches(Storage("vllm", "bf16"))[:1]
        if cache.window is None
    ]
    assert sum(size * layers for size, layers in caches) == kv


def test_the_sum_of_minimax_is_the_published_count_to_the_weight() -> None:
    """facts: llama.cpp and the hub's metadata name 228,689,764,864 weights; FP8 tensors take 230,121,630,720 bytes."""
    found = sums("MiniMaxAI/MiniMax-M2.7")
    assert found.weights.body == 228_689_764_864
    assert tensor_bytes(found).total == 230_121_630_720
    assert not found.experts_only


def test_attention_formulas_are_the_tensors() -> None:
    """One class of attention says how many weights it has, the tensors say the same; biases and gates a head apart."""
    for repo in PUBLISHED:
        model = model_of("x", Config(CONFIGS[repo]["config"], repo), sums(repo), Origin(""), "", Extras(), {})
        layers = [layer for layer in sums(repo).weights.layers if layer["attention"]]  # experts may be replicated, too
        there = sum(layer[part] for layer in layers for part in ("attention", "key_value", "replicated"))
        said = sum(entry.parameters(model.hidden) * len(entry.layers) for entry in model.attention)
        assert there == pytest.approx(said, rel=0.0005), repo


@pytest.mark.parametrize(
    ("repo", "shapes", "gigabytes"),
    [
        ("nvidia/Qwen3-235B-A22B-NVFP4", "Qwen/Qwen3-235B-A22B", 134.1),
        ("zai-org/GLM-5.2-FP8", "zai-org/GLM-5.2", 745.6),
        ("nvidia/Qwen3.6-27B-NVFP4", "Qwen/Qwen3.5-27B", 21.1),
        ("deepseek-ai/DeepSeek-V4-Pro", "deepseek-ai/DeepSeek-V4-Pro", 851.0),
        ("openai/gpt-oss-120b", "openai/gpt-oss-120b", 65.2),
    ],
)
def test_quantised_checkpoints_hold_the_same_weights(repo: str, shapes: str, gigabytes: float) -> None:
    entry = CONFIGS[repo]
    found = sums(repo, shapes)
    plain = sums_of(
        repo,
        stored(SHAPES[shapes], read_scheme(None, repo), entry["config"]["model_type"]),
        layers_of(entry),
        read_scheme(None, repo),
        is_tied(Config(entry["config"], repo)),
    )
    assert found.weights.body == pytest.approx(plain.weights.body, rel=1e-8)
    assert tensor_bytes(found).total / 1e9 == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        *((name, True) for name in ("apache-2.0", "mit", "openmdw-1.1", "llama3.3", "nvidia-open-model-license")),
        *((name, False) for name in ("cc-by-nc-4.0", "minimax-m2.7-non-commercial", "research-only")),
        *((name, None) for name in ("", "glm-5.3", "kimi-k3", "mit-with-more")),
    ],
)
def test_a_licence_allows_commerce_only_where_its_name_tells(name: str, allowed: bool | None) -> None:
    assert allows_commerce(name) is allowed


DRAFT_LAYERS = {
    "Qwen/Qwen3.5-397B-A17B": ["full"],
    "deepseek-ai/DeepSeek-V3": ["latent"],
    "deepseek-ai/DeepSeek-V3.2": ["latent_indexed"],
    "zai-org/GLM-5.2": ["latent_indexed"],
    "deepseek-ai/DeepSeek-V4-Flash": ["compressed_sparse"],
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": ["full", "none"],
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": ["full", "none"],
    "XiaomiMiMo/MiMo-7B-Base": ["full"],
    "stepfun-ai/Step-3.7-Flash": ["full"] * 3,
    "moonshotai/Kimi-K2-Instruct": [],
    "openai/gpt-oss-120b": [],
}


@pytest.mark.parametrize("name", DRAFT_LAYERS)
def test_draft_layers_are_as_the_configuration_says(name: str) -> None:
    entries = read_draft_layers(Config(CONFIGS[name]["config"], name).text_model)
    by_layer = sorted((number, entry.kind) for entry in entries for number in entry.layers)
    assert [kind for _, kind in by_layer] == DRAFT_LAYERS[name]


def test_a_draft_layer_has_an_indexer_of_its_own_and_the_entry_behind_the_last_layer() -> None:
    (glm,) = read_draft_layers(Config(CONFIGS["zai-org/GLM-5.2"]["config"], "GLM-5.2"))
    last = max(read_layers(Config(CONFIGS["zai-org/GLM-5.2"]["config"], "GLM-5.2")), key=lambda e: max(e.layers))
    assert (glm.index_shared, last.index_shared) == (False, True)
    (v4,) = read_draft_layers(Config(CONFIGS["deepseek-ai/DeepSeek-V4-Flash"]["config"], "V4"))
    assert v4.ratio == CONFIGS["deepseek-ai/DeepSeek-V4-Flash"]["config"]["compress_ratios"][43] == 0


@pytest.mark.parametrize(
    ("name", "kind"), [("XiaomiMiMo/MiMo-V2-Flash", "sliding_window"), ("zai-org/GLM-5.3-Flash", "latent_indexed")]
)
def test_a_draft_layer_beside_layers_of_two_kinds(name: str, kind: str) -> None:
    text = Config(CONFIGS[name]["config"], name).text_model
    (draft,) = read_draft_layers(Config({**text.data, "num_nextn_predict_layers": 3}, name))
    assert (draft.kind, draft.layers) == (kind, (0, 1, 2))
    (same,) = (entry for entry in read_layers(text) if entry.kind == kind)
    assert draft == same.model_copy(update={"layers": (0, 1, 2)})


@pytest.mark.parametrize("said", [17, -1, "many"])
def test_an_absurd_count_of_draft_layers_is_refused(said: object) -> None:
    config = {**CONFIGS["Qwen/Qwen3-235B-A22B"]["config"], "num_nextn_predict_layers": said}
    with pytest.raises(InputError, match=r"num_nextn_predict_layers: must be .* to 16, "):
        read_draft_layers(Config(config, "some"))


def test_linear_layers_stand_beside_latent_ones() -> None:
    """GLM 5.3 Flash: 34 linear layers and 11 latent ones, whose indexer keeps one key for 16 tokens."""
    config = Config(CONFIGS["zai-org/GLM-5.3-Flash"]["config"], "glm").text_model
    linear, latent = read_layers(config)
    assert (linear.kind, len(linear.layers), latent.kind, len(latent.layers)) == (
        *("kimi_delta", 34),
        *("latent_indexed", 11),
    )
    keys, index = latent.caches(Storage("sglang", "bf16"))
    assert (keys.token_bytes, index.token_bytes, index.tokens_per_entry) == (1024, 132 / 16, 16)
    assert linear.caches(Storage("sglang", "bf16"))[0].state_bytes > 0
    as_published = Config({**config.data, "linear_attn_config": {"num_heads": 64, "head_dim": 128}}, "glm")
    assert read_layers(as_published) == (linear, latent)
    without = {key: value for key, value in config.data.items() if key != "linear_num_heads"}
    with pytest.raises(InputError, match="linear_num_heads is missing"):
        read_layers(Config(without, "glm"))


def test_layers_share_the_entries_of_others() -> None:
    """DeepSeek V4.1: entries on four layers, index keys on eight, a window on all forty."""
    config = Config(CONFIGS["deepseek-ai/DeepSeek-V4.1-Flash"]["config"], "v41").text_model
    kept = [(len(entry.layers), entry.caches(Storage("vllm", "bf16"))) for entry in read_layers(config)]
    assert sum(count for count, caches in kept for cache in caches if cache.window) == 40
    assert sum(count for count, caches in kept if any(cache.state_bytes for cache in caches)) == 8
    with pytest.raises(InputError, match="kv_source_layer_ids: must be a list of layers from 0 to 39"):
        read_layers(Config({**config.data, "kv_source_layer_ids": [40]}, "v41"))


@pytest.mark.parametrize(
    ("repo", "billions", "active"),
    [
        ("tencent/Hy4-preview", 770, 49),
        ("mistralai/Mistral-Large-4-1T-A52B", 1050, 52),
        ("meta-models/Muse-Spark-Open-816B-A42B", 816, 42),
    ],
)
def test_models_of_public_classes_have_the_size_of_their_names(repo: str, billions: float, active: float) -> None:
    model = model_of("x", Config(CONFIGS[repo]["config"], repo), sums(repo), Origin(""), "", Extras(), {})
    assert model.parameters == pytest.approx(billions * 1e9, rel=0.01)
    assert model.active_parameters == pytest.approx(active * 1e9, rel=0.06)


@pytest.mark.parametrize(
    ("checkpoint", "gigabytes"),
    [
        ("MiMo-V2.5 XiaomiMiMo/MiMo-V2.5 FP8", 315.7),
        ("Hy3 tencent/Hy3 BF16", 597.6),
        ("Hy3 tencent/Hy3-FP8 FP8", 299.9),
        ("GLM-5.2 zai-org/GLM-5.2 BF16", 1506.7),
        ("GLM-5.2 zai-org/GLM-5.2-FP8 FP8", 755.6),
        ("Kimi-K2.6 moonshotai/Kimi-K2.6 INT4-g32", 595.2),
        ("Kimi-K3 unsloth/Kimi-K3-GGUF UD-Q4_K_XL", 1508),
        ("DeepSeek-V4-Flash-0731 unsloth/DeepSeek-V4-Flash-0731-GGUF UD-Q4_K_XL", 155.05),
        ("DeepSeek-V4-Pro-0813 unsloth/DeepSeek-V4-Pro-0813-GGUF UD-Q4_K_XL", 849),
        ("MiniMax-M3 unsloth/MiniMax-M3-GGUF BF16", 852),
    ],
)
def test_computed_sizes_are_near_those_of_hubs(checkpoint: str, gigabytes: float) -> None:
    """Sizes that the hub lists, as public reports of 2026-09 quote them; towers and drafts are not always counted."""
    model, repo, quant = checkpoint.split()
    entry = next(each for each in CATALOGUE.checkpoints if (each.repo, each.quant) == (repo, quant))
    assert entry.model == model
    assert entry.bytes == pytest.approx(gigabytes * 1e9, rel=0.02)


def test_the_largest_matrix_of_experts_in_a_gguf_is_known() -> None:
    """One tensor for each matrix of all experts; biases and the other matrices are smaller."""
    names = {
        "ffn_gate_exps.weight": 400,
        "ffn_down_exps.weight": 600,
        "ffn_down_exps.bias": 8,
        "ffn_gate_inp.weight": 900,
    }
    tensors = [Tensor("token_embd.weight", "F16", (4, 4), 32)]
    tensors += [Tensor(f"blk.0.{name}", "Q4_K", (2, 4, 4), size) for name, size in names.items()]
    (layer,) = tensor_bytes(sums_of("a/b", tensors, 1, Gguf(), tied=False)).layers
    assert (layer.experts, layer.expert_matrix, layer.total) == (1008, 600, 1908)
