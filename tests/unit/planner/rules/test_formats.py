"""Which weights run where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.planner.rules import formats
from rigup.planner.rules.rule import Rule
from tests.unit.planner.rules.builder import CATALOGUE, PRO_6000, candidate

FP8, NVFP4, GGUF = "MiniMaxAI/MiniMax-M2.5", "nvidia/MiniMax-M2.5-NVFP4", "unsloth/MiniMax-M2.5-GGUF"

MISTRAL = "mistralai/Mistral-Small-4-119B-2603"


def messages(rule: Rule, *args: Any, **kwargs: Any) -> list[str]:
    return [finding.message for finding in rule(candidate(*args, **kwargs))]


def test_gguf_on_vllm_is_refused_by_name() -> None:
    (message,) = messages(formats.weight_format, "4x RTX 3090", GGUF, "vllm", quant="UD-IQ2_M")
    assert message == "vLLM 0.33.0 cannot serve MiniMax-M2.5 from GGUF"


def test_safetensors_on_llama_cpp_are_refused() -> None:
    (message,) = messages(formats.weight_format, "4x H200", FP8, "llama.cpp")
    assert message == "llama.cpp cannot read FP8 safetensors"


def test_every_engine_reads_what_it_is_made_for() -> None:
    assert messages(formats.weight_format, "4x RTX 3090", GGUF, "llama.cpp", quant="UD-IQ2_M") == []
    assert messages(formats.weight_format, "4x H200", FP8, "vllm") == []
    assert messages(formats.weight_format, "2x B200", NVFP4, "sglang") == []


@pytest.mark.parametrize(
    ("name", "version", "repo", "says"),
    [
        ("vllm", "0.33.0", "mistralai/Magistral-Small-2509", ""),
        ("vllm", "0.12.0", "mistralai/Mistral-Small-4-119B-2603", ""),
        ("sglang", "0.5.23", "mistralai/Mistral-Small-4-119B-2603-NVFP4", ""),
        ("sglang", "0.5.9", "mistralai/Mistral-Large-3-675B-Instruct-2512", ""),
        ("sglang", "0.5.9", "mistralai/Mistral-Small-4-119B-2603", "a name like mistral-large-3; this is "),
        (
            "sglang",
            "0.5.23",
            "mistralai/Magistral-Small-2509",
            "mistral-small-4, leanstral; this is mistralai/Magistral",
        ),
        ("llama.cpp", "b11434", "mistralai/Magistral-Small-2509", "llama.cpp b11434 does not read"),
    ],
)
def test_mistrals_own_format_is_read_as_far_as_the_engine_does(name: str, version: str, repo: str, says: str) -> None:
    asked = candidate("2x H200", MISTRAL, name, version)
    found = list(formats.mistral_format(replace(asked, checkpoint=asked.checkpoint.model_copy(update={"repo": repo}))))
    assert [says in finding.message for finding in found] == [True] * bool(says)
    assert messages(formats.mistral_format, "4x H200", FP8, name, version) == []


@pytest.mark.parametrize(
    ("name", "version", "repo", "gpus", "refused"),
    [
        ("vllm", "0.33.0", NVFP4, "8x RTX 3090", False),
        ("vllm", "0.13.0", FP8, "4x H200", False),
        ("sglang", "0.5.12", NVFP4, "4x H200", True),
        ("sglang", "0.5.13", NVFP4, "4x H200", False),
    ],
)
def test_the_floor_depends_on_engine_version_and_format(
    name: str, version: str, repo: str, gpus: str, refused: bool
) -> None:
    assert bool(messages(formats.minimum_capability, gpus, repo, name, version)) is refused


def test_a_refused_card_is_named_with_its_capability() -> None:
    (message,) = messages(formats.minimum_capability, "4x H200", NVFP4, "sglang", "0.5.9")
    assert message == "SGLang 0.5.9 needs compute capability 10.0 for NVFP4; NVIDIA H200 has 9.0"


def test_nvfp4_on_hopper_runs_and_says_what_it_costs() -> None:
    (message,) = messages(formats.format_fallback, "2x H200", NVFP4)
    assert message.startswith("NVFP4 is not native here: weight-only through Marlin")
    assert messages(formats.format_fallback, f"2x {PRO_6000}", NVFP4) == []


def test_a_fallback_is_not_promised_where_the_format_is_refused() -> None:
    assert messages(formats.format_fallback, "4x H200", NVFP4, "sglang", "0.5.9") == []


def test_cuda_13_refuses_volta_and_cuda_12_takes_it() -> None:
    volta = (
        candidate("1x RTX 3090", FP8)
        .rig.gpus[0]
        .model_copy(update={"name": "NVIDIA Tesla V100", "compute_capability": "7.0"})
    )
    for version, refused in (("0.33.0", True), ("0.19.1", False)):
        asked = candidate("1x RTX 3090", FP8, "vllm", version)
        rig = asked.rig.model_copy(update={"gpus": (volta,)})
        found = formats.cuda_capability(replace(asked, rig=rig))
        assert bool(found) is refused


def test_a_checkpoint_recommends_its_oldest_version() -> None:
    entry = next(c for c in CATALOGUE.checkpoints if "vllm" in (c.minimum_versions or {}) and c.model == "MiniMax-M3")
    old = candidate("8x B200", entry.repo, "vllm", "0.12.0", quant=entry.quant)
    (finding,) = formats.checkpoint_version(old)
    assert finding.hint == f"set version to {(entry.minimum_versions or {})['vllm']}"
    assert finding.source == entry.sources["minimum_versions"]
    assert formats.checkpoint_version.severity == "warns"
    assert formats.checkpoint_version(candidate("8x B200", entry.repo, quant=entry.quant)) == ()


@pytest.mark.parametrize(
    ("method", "engine", "version", "message"),
    [
        ("mxfp8", "vllm", "0.18.0", "vLLM 0.18.0 has no quantisation `mxfp8`; vLLM 0.19.0 and SGLang 0.5.23 have"),
        ("hqq", "sglang", "0.5.23", "SGLang 0.5.23 has no quantisation `hqq`; vLLM 0.14.1 has"),
        ("of-our-own", "vllm", "0.33.0", "vLLM 0.33.0 has no quantisation `of-our-own`"),
        ("fp8", "vllm", "0.33.0", None),
        ("auto-round", "vllm", "0.33.0", None),
        ("", "vllm", "0.33.0", None),
    ],
)
def test_a_method_that_the_package_does_not_list_is_refused(
    method: str, engine: str, version: str, message: str | None
) -> None:
    asked = candidate("4x H200", FP8, engine, version=version)
    given = replace(asked, checkpoint=asked.checkpoint.model_copy(update={"method": method}))
    found = [finding.message for finding in formats.quantisation_method(given)]
    assert found == ([] if message is None else [message])
