"""vLLM's command line, per version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.commands import vllm
from rigup.commands.command import command
from rigup.plan import Checkpoint
from rigup.planner.candidate import Candidate
from tests.unit.planner.rules.builder import PRO_6000, candidate

FP8, NVFP4 = "MiniMaxAI/MiniMax-M2.5", "lukealonso/MiniMax-M2.5-NVFP4"
MISTRAL = "mistralai/Mistral-Small-4-119B-2603"
CHECKPOINT = Checkpoint(repo=FP8, quant="FP8", bytes=230_134_260_592)


def options(asked: Candidate) -> dict[str, Any]:
    return vllm.options(asked, CHECKPOINT)


def test_the_weights_are_a_local_folder_of_one_revision() -> None:
    pinned = CHECKPOINT.model_copy(update={"revision": "a" * 40})
    words = command(candidate("4x H200", FP8, parallel={"tensor": 4}), pinned).words
    assert words[:3] == ("bin/vllm", "serve", f"/var/lib/rigup/weights/{FP8}/{'a' * 40}")


def test_reasoning_is_split_off_and_tools_are_parsed_when_asked() -> None:
    asked = options(candidate("4x H200", FP8, service={"tools": True, "reasoning": True}))
    assert asked["--reasoning-parser"] == "minimax_m2"
    assert asked["--tool-call-parser"] == "minimax_m2"
    assert asked["--enable-auto-tool-choice"] is True
    assert not {"--reasoning-parser", "--tool-call-parser"} & set(options(candidate("4x H200", FP8)))


def test_mistrals_own_format_is_named() -> None:
    named = {"--config-format": "mistral", "--load-format": "mistral", "--tokenizer-mode": "mistral"}
    assert named.items() <= options(candidate("2x H200", MISTRAL, parallel={"tensor": 2})).items()
    assert not named.keys() & options(candidate("4x H200", FP8)).keys()
    found = command(candidate("2x H200", MISTRAL, service={"flags": {"--tokenizer-mode": "hf"}}), CHECKPOINT).words
    assert found[found.index("--tokenizer-mode") + 1] == "hf"


def test_trust_remote_code_is_off_unless_asked() -> None:
    assert "--trust-remote-code" not in options(candidate("4x H200", FP8))
    assert options(candidate("4x H200", FP8, service={"trust_remote_code": True}))["--trust-remote-code"] is True


@pytest.mark.parametrize(
    ("version", "option", "variable"), [("0.16.0", None, "0"), ("0.23.0", "cutlass", None), ("0.33.0", "cutlass", None)]
)
def test_the_nvfp4_backend_is_an_option_where_the_variable_is_gone(
    version: str, option: str | None, variable: str | None
) -> None:
    asked = candidate(f"2x {PRO_6000}", NVFP4, "vllm", version, parallel={"tensor": 2})
    assert options(asked).get("--moe-backend") == option
    assert vllm.environment(asked, CHECKPOINT).get("VLLM_USE_FLASHINFER_MOE_FP4") == variable


def test_b200_keeps_the_backend_that_is_made_for_it() -> None:
    assert "--moe-backend" not in options(candidate("2x B200", NVFP4, parallel={"tensor": 2}))


def test_mixed_cards_get_the_backend_that_runs_on_all_of_them() -> None:
    mixed = candidate("3x RTX 3090", NVFP4, rig={"gpus": [PRO_6000, "RTX 3090", "RTX 3090"]})
    assert options(mixed)["--moe-backend"] == "marlin"


def test_a_pipeline_names_its_partition() -> None:
    asked = candidate(f"3x {PRO_6000}", NVFP4, parallel={"pipeline": 3}, pipeline_partition=(40, 11, 11))
    assert options(asked)["--pipeline-parallel-size"] == 3
    assert vllm.environment(asked, CHECKPOINT)["VLLM_PP_LAYER_PARTITION"] == "40,11,11"


@pytest.mark.parametrize(
    ("repo", "named", "said"),
    [
        (NVFP4, None, "bfloat16"),
        (NVFP4, "auto", None),
        (NVFP4, "fp8", "bfloat16"),
        (FP8, None, None),
        (FP8, "fp8", "bfloat16"),
    ],
)
def test_the_cache_type_is_said_where_the_checkpoint_may_say_another(
    repo: str, named: str | None, said: str | None
) -> None:
    asked = candidate("2x B200", repo)
    asked = replace(asked, checkpoint=asked.checkpoint.model_copy(update={"kv_cache_type": named}))
    assert options(asked).get("--kv-cache-dtype") == said
    assert options(replace(asked, kv_cache_type="fp8"))["--kv-cache-dtype"] == "fp8"


def test_sampling_is_the_makers_with_the_users_over_it() -> None:
    asked = options(candidate("4x H200", FP8, service={"sampling": {"temperature": 0.7}}))
    assert asked["--override-generation-config"] == '{"temperature":0.7,"top_p":0.95,"top_k":40}'


def test_the_users_flags_have_the_last_word() -> None:
    flags = {"--gpu-memory-utilization": 0.8, "--max-num-seqs": False, "--compilation-config": {"mode": 3}}
    words = command(candidate("4x H200", FP8, service={"flags": flags}), CHECKPOINT).words
    assert words[words.index("--gpu-memory-utilization") + 1] == "0.8"
    assert "--max-num-seqs" not in words
    assert words[words.index("--compilation-config") + 1] == '{"mode":3}'


def test_a_key_is_never_in_the_command() -> None:
    words = command(candidate("4x H200", FP8, service={"api_key_file": "secrets/x.key"}), CHECKPOINT).words
    assert not any("key" in word for word in words)


def test_the_engines_own_patience_is_the_units() -> None:
    found = command(candidate("4x H200", FP8), CHECKPOINT)
    assert found.environment["VLLM_ENGINE_READY_TIMEOUT_S"] == str(found.start_timeout_s)
    assert "VLLM_ENGINE_READY_TIMEOUT_S" not in vllm.environment(
        candidate("4x H200", FP8, "vllm", "0.13.0"), CHECKPOINT
    )


def test_requests_in_flight_end_within_the_services_own_time() -> None:
    assert options(candidate("4x H200", FP8))["--shutdown-timeout"] == 120
    assert options(candidate("4x H200", FP8, service={"drain_timeout": 600}))["--shutdown-timeout"] == 600
    assert "--shutdown-timeout" not in options(candidate("4x H200", FP8, service={"drain_timeout": 0}))
    assert "--shutdown-timeout" not in options(candidate("4x H200", FP8, "vllm", "0.17.1"))


def test_a_large_model_gets_more_time_to_load() -> None:
    large = command(candidate("4x H200", FP8), CHECKPOINT).start_timeout_s
    small = command(candidate("4x H200", FP8), CHECKPOINT.model_copy(update={"bytes": 10**8})).start_timeout_s
    assert small == 1800
    assert large == 1800 + 920
