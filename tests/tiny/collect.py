"""Collects what tiny models of every class of attention look like, for checkpoint.py, which makes their files.

    python -m tests.tiny.collect LLAMA_CPP [CLASS...]

Each is built from its real configuration class by transformers 5.23.0 on PyTorch 2.13.0 (both are needed here and
nowhere else), put into the form that makers publish, and converted by the converter of LLAMA_CPP, an unpacked source
of b11434. classes.json keeps the configuration, the names, types and shapes of all tensors in both forms, and the
metadata of the GGUF file; no weights.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rigup.layer_range import layers_text

CLASSES = Path(__file__).parent / "classes.json"
NUMBER = re.compile(r"(?<=[._])\d+(?=[.]|$)")
VOCAB, CONTEXT, LAYERS, HIDDEN = 512, 8192, 4, 128
EVERY: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": 257,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
MIXTURE = {"num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True, "n_group": 1, "topk_group": 1}
ROUTED = {**MIXTURE, "n_routed_experts": 4, "n_shared_experts": 1, "routed_scaling_factor": 1.0}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 512,  # with the next: the one width that the kernels of vLLM on CPUs have
    "q_lora_rank": 96,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "intermediate_size": 256,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
}
DEEPSEEK = {**LATENT, **ROUTED, "scoring_func": "sigmoid", "topk_method": "noaux_tc"}
SPARSE = [0, 1, 1, 1]
OWN: dict[str, dict[str, Any]] = {
    "full": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 32,
        "intermediate_size": 256,
    },
    "sliding_window": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_hidden_layers": 6,
        "head_dim": 64,
        "intermediate_size": 256,
        "sliding_window": 256,
        "sliding_window_pattern": 6,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 64,
        "rope_local_base_freq": 10000.0,
        "tie_word_embeddings": True,
    },
    "chunked_local": {
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        "head_dim": 32,
        "intermediate_size": 64,
        "intermediate_size_mlp": 256,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
        "max_position_embeddings": 32768,
        "attention_chunk_size": 8192,  # llama.cpp b11434 src/models/llama4.cpp knows no other
        "no_rope_layer_interval": 4,
        "use_qk_norm": True,
        "attn_temperature_tuning": True,
    },
    "latent": {**DEEPSEEK, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"},
    "latent_indexed": {
        **DEEPSEEK,
        "architectures": ["DeepseekV32ForCausalLM"],
        "model_type": "deepseek_v32",
        "index_n_heads": 4,
        "index_head_dim": 64,
        "index_topk": 256,
    },
    "compressed_sparse": {
        **ROUTED,
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": "deepseek_v4",
        "num_key_value_heads": 1,
        "head_dim": 256,
        "qk_rope_head_dim": 32,
        "q_lora_rank": 64,
        "o_lora_rank": 64,
        "o_groups": 2,
        "index_n_heads": 4,
        "index_head_dim": 128,
        "index_topk": 64,
        "sliding_window": 128,
        "compress_ratios": [0, 4, 128, 4],
        "compress_rope_theta": 160000.0,
        "rope_scaling": {
            "type": "yarn",
            "factor": 16,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32,
            "beta_slow": 1,
        },
        "hc_mult": 4,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-6,
        "num_hash_layers": 1,
        "num_nextn_predict_layers": 0,
        "scoring_func": "sqrtsoftplus",
        "topk_method": "noaux_tc",
        "swiglu_limit": 10.0,
        "expert_dtype": "fp4",
    },
    "gated_delta": {
        **MIXTURE,
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "head_dim": 64,
        "intermediate_size": 256,
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "num_experts": 4,
        "shared_expert_intermediate_size": 64,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "partial_rotary_factor": 0.25,
    },
    "kimi_delta": {
        **LATENT,
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "q_lora_rank": None,
        "head_dim": 96,
        "linear_attn_config": {
            "full_attn_layers": [4],
            "kda_layers": [1, 2, 3],
            "head_dim": 32,
            "num_heads": 4,
            "short_conv_kernel_size": 4,
        },
        "num_experts": 4,
        "num_experts_per_token": 2,
        "num_shared_experts": 1,
        "num_expert_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": 64,
        "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid",
        "routed_scaling_factor": 1.0,
        "use_grouped_topk": True,
        "mla_use_nope": True,
        "num_nextn_predict_layers": 0,
    },
    "mamba": {
        "architectures": ["JambaForCausalLM"],
        "model_type": "jamba",
        "intermediate_size": 256,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "attn_layer_period": 4,
        "attn_layer_offset": 2,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_dt_rank": 8,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
    },
    "mamba2": {
        **ROUTED,
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "hybrid_override_pattern": "M*ME",
        "head_dim": 32,
        "intermediate_size": 64,
        "ssm_state_size": 32,
        "mamba_num_heads": 8,
        "mamba_head_dim": 32,
        "n_groups": 2,
        "conv_kernel": 4,
        "expand": 2,
        "chunk_size": 64,
        "mlp_hidden_act": "relu2",
        "mamba_hidden_act": "silu",
        "layer_norm_epsilon": 1e-5,
        "norm_eps": 1e-5,
        "use_conv_bias": True,
        "use_bias": False,
        "mlp_bias": False,
        "attention_bias": False,
        "mamba_proj_bias": False,
        "moe_shared_expert_intermediate_size": 64,
        "time_step_limit": [0.0, 1e30],
        "time_step_min": 0.001,
        "time_step_max": 0.1,
        "time_step_rank": 8,
        "mamba_ssm_cache_dtype": "float32",
        "residual_in_fp32": False,
        "rescale_prenorm_residual": True,
    },
    "block_sparse": {
        "architectures": ["MiniMaxM3SparseForCausalLM"],
        "model_type": "minimax_m3",
        "head_dim": 32,
        "rotary_dim": 16,
        "intermediate_size": 64,
        "dense_intermediate_size": 256,
        "shared_intermediate_size": 64,
        "n_shared_experts": 1,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "moe_layer_freq": SPARSE,
        "routed_scaling_factor": 2.0,
        "scoring_func": "sigmoid",
        "use_routing_bias": True,
        "use_qk_norm": True,
        "qk_norm_type": "per_head",
        "use_gemma_norm": True,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
        "hidden_act": "swigluoai",
        "sparse_attention_config": {
            "use_sparse_attention": True,
            "sparse_attention_freq": SPARSE,
            "sparse_block_size": 128,
            "sparse_index_dim": 32,
            "sparse_num_index_heads": 2,
            "sparse_topk_blocks": 4,
            "sparse_local_block": 1,
            "sparse_init_block": 0,
            "sparse_score_type": "max",
            "sparse_disable_index_value": SPARSE,
        },
    },
}
# What transformers calls classes that their makers' files name otherwise.
TRANSFORMERS = {"minimax_m3": "minimax_m3_vl_text"}
MODELS = {"minimax_m3": "MiniMaxM3VLForCausalLM"}
CONVERTERS = {"Llama4ForCausalLM": "Llama4ForConditionalGeneration"}


def build(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The tensors as transformers saves them."""
    import torch
    import transformers
    from safetensors.torch import load_file
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = config["model_type"]
    described = CONFIG_MAPPING[TRANSFORMERS.get(kind, kind)].from_dict({**config})
    module = getattr(transformers, MODELS.get(kind, config["architectures"][0]))
    model = module._from_config(described).to(torch.bfloat16)
    model.save_pretrained(folder)
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


def published(kind: str, tensors: dict[str, Any]) -> dict[str, Any]:
    """The tensors as makers publish them, where transformers saves them in another way."""
    if kind == "deepseek_v4":
        return {ours: value for name, tensor in tensors.items() for ours, value in _deepseek_v4(name, tensor)}
    if kind == "kimi_linear":  # its first layer has no experts
        return {n.replace(".block_sparse_moe", ".mlp") if ".layers.0." in n else n: t for n, t in tensors.items()}
    if kind == "minimax_m3":
        return {ours: value for name, tensor in tensors.items() for ours, value in _minimax_m3(name, tensor)}
    return tensors


def _deepseek_v4(name: str, tensor: Any) -> Iterable[tuple[str, Any]]:
    import torch

    name = name.removeprefix("model.").replace("embed_tokens", "embed").replace("hc_head.hc_", "hc_head_")
    name = name.replace(".attn.norm.", ".attn.kv_norm.")
    if ".experts." in name:
        rows, columns = tensor.shape
        yield name, torch.zeros((rows, columns // 2), dtype=torch.int8)
        scales = torch.zeros((rows, columns // 32), dtype=torch.uint8).view(torch.float8_e8m0fnu)
        yield name.replace(".weight", ".scale"), scales
    elif "hc_" in name or name.endswith(("attn_sink", "ape", "gate.bias")):
        yield name, tensor.float()
    else:
        yield name, tensor


def _minimax_m3(name: str, tensor: Any) -> Iterable[tuple[str, Any]]:
    name = name.replace("indexer.", "index_")
    if found := re.match(r"(model\.layers\.[1-9]\d*)\.mlp\.(.+)", name):
        name = f"{found[1]}.block_sparse_moe.{found[2].replace('gate.e_score', 'e_score')}"
    halves = tensor.chunk(2, dim=-2) if "gate_up_proj" in name else ()
    if ".experts." in name:
        before = name.rpartition(".")[0]
        for names, part in zip((("w1", "w3") if halves else ("w2",)), halves or (tensor,), strict=True):
            for expert in range(part.shape[0]):
                yield f"{before}.{expert}.{names}.weight", part[expert].contiguous()
    elif halves:
        for ours, part in zip(("gate_proj", "up_proj"), halves, strict=True):
            yield name.replace("gate_up_proj", ours), part.contiguous()
    else:
        yield name, tensor


def convert(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What llama.cpp's converter makes of a folder: metadata without the vocabulary, and tensors."""
    import gguf
    import torch
    from conversion import get_model_class
    from conversion.base import ModelBase

    named = config["architectures"][0]
    converter = get_model_class(CONVERTERS.get(named, named))
    for each in converter.__mro__:
        if "set_vocab" in each.__dict__:
            each.set_vocab = lambda self: None  # the vocabulary is checkpoint.py's
    converter.no_mtp = True
    target = folder / "model.gguf"
    with torch.inference_mode():
        hparams = ModelBase.load_hparams(folder, False)
        converter(folder, gguf.LlamaFileType.MOSTLY_F16, target, hparams=hparams).write()
    reader = gguf.GGUFReader(target)
    metadata = {
        name: [[kind.name for kind in field.types], field.contents()]
        for name, field in reader.fields.items()
        if not name.startswith(("GGUF.", "tokenizer.", "general.name", "general.size_label"))
    }
    tensors = [(t.name, t.tensor_type.name, tuple(int(n) for n in reversed(t.shape))) for t in reader.tensors]
    return {"metadata": metadata, "tensors": rows_of(tensors)}


def rows_of(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> list[list[Any]]:
    """[name, layers, type, shape] of tensors; equal ones of several layers are one row, {} the layer's number."""
    groups: dict[tuple[str, str, tuple[int, ...]], list[int]] = defaultdict(list)
    for name, dtype, shape in tensors:
        number = NUMBER.search(name)
        key = f"{name[: number.start()]}{{}}{name[number.end() :]}" if number else name
        groups[key, dtype, shape].append(int(number[0]) if number else 0)
    return [[name, layers_text(n) if "{}" in name else "", kind, list(s)] for (name, kind, s), n in groups.items()]


def collect(kind: str) -> dict[str, Any]:
    """The entry of a class."""
    from safetensors.torch import save_file

    from tests.tiny.checkpoint import tokenizer

    config = {**EVERY, **OWN[kind]}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tensors = published(config["model_type"], build(config, folder / "saved"))
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
        gguf = convert(config, folder)
        header = (folder / "model.safetensors").read_bytes()
        said = json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")])
    rows = rows_of((name, t["dtype"], tuple(t["shape"])) for name, t in sorted(said.items()) if name != "__metadata__")
    return {"config": config, "tensors": rows, "gguf": gguf}


def main(source: Path, names: list[str]) -> None:
    """Writes classes.json."""
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    found: dict[str, Any] = json.loads(CLASSES.read_text()) if CLASSES.exists() else {}
    found |= {name: collect(name) for name in names or OWN}
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(found.items()))
    CLASSES.write_text(f"{{\n{text}\n}}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
