"""What memory is counted from is what the engine gets; what is not counted is not asked for."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.catalogue.option_names import known_options
from rigup.planner.candidate import Candidate
from rigup.planner.rules import memory_options, options
from rigup.planner.rules.unmodelled_options import DRAFTS, UNMODELLED
from tests.unit.planner.rules.builder import CATALOGUE, candidate
from tests.unit.planner.rules.test_options import IN_SERVICE

WHOLE = "a whole number from"

FP8, GGUF = "MiniMaxAI/MiniMax-M2.5", "unsloth/MiniMax-M2.5-GGUF"
RANGE = "leave it out, or write a number in that range"
PART = "must be a fraction of the GPU, above 0 and at most 0.98"


def asked(engine: str = "vllm", gpus: str = "4x H200", **service: Any) -> Candidate:
    repo, quant = (GGUF, "UD-IQ2_M") if engine == "llama.cpp" else (FP8, None)
    return candidate(gpus, repo, engine, None, quant, parallel={"tensor": 4}, service=service)


BAD_NUMBERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "more than the GPU": (
        "vllm",
        {"--gpu-memory-utilization": 1.5},
        f"--gpu-memory-utilization {PART}, not 1.5",
    ),
    "all of the GPU": ("vllm", {"--gpu-memory-utilization": 1.0}, f"--gpu-memory-utilization {PART}, not 1.0"),
    "none of the GPU": ("vllm", {"--gpu-memory-utilization": 0}, f"--gpu-memory-utilization {PART}, not 0"),
    "a part in words": ("vllm", {"--gpu-memory-utilization": "abc"}, f'--gpu-memory-utilization {PART}, not "abc"'),
    "a part that is no number": (
        "vllm",
        {"--gpu-memory-utilization": "nan"},
        f'--gpu-memory-utilization {PART}, not "nan"',
    ),
    "a part that is infinite": ("sglang", {"--mem-fraction-static": "inf"}, f'--mem-fraction-static {PART}, not "inf"'),
    "a part as a switch": ("sglang", {"--mem-fraction-static": True}, f"--mem-fraction-static {PART}, not True"),
    "a part taken away": ("vllm", {"--gpu-memory-utilization": False}, f"--gpu-memory-utilization {PART}, not False"),
    "a part as a list": ("vllm", {"--gpu-memory-utilization": [0.9]}, f"--gpu-memory-utilization {PART}, not [0.9]"),
    "no sequence": (
        "vllm",
        {"--max-num-seqs": 0},
        f"--max-num-seqs must be {WHOLE} 1 to 65,536, not 0",
    ),
    "endless sequences": (
        "vllm",
        {"--max-num-seqs": "inf"},
        f'--max-num-seqs must be {WHOLE} 1 to 65,536, not "inf"',
    ),
    "sequences beyond counting": (
        "vllm",
        {"--max-num-seqs": 10**400},
        f"--max-num-seqs must be {WHOLE} 1 to 65,536, not {str(10**400)[:57]}...",
    ),
    "a short form of thousands": (
        "vllm",
        {"--max-num-batched-tokens": "8k"},
        f'--max-num-batched-tokens must be {WHOLE} 1 to 16,777,216, not "8k"',
    ),
    "half a GiB": (
        "vllm",
        {"--cpu-offload-gb": 10.5},
        f"--cpu-offload-gb must be {WHOLE} 0 to 65,536, not 10.5",
    ),
    "a whole number with a point": (
        "sglang",
        {"--max-running-requests": 8.0},
        f"--max-running-requests must be {WHOLE} 1 to 65,536, not 8.0",
    ),
    "no chunks": (
        "sglang",
        {"--chunked-prefill-size": -1},
        f"--chunked-prefill-size must be {WHOLE} 1 to 16,777,216, not -1",
    ),
    "slots to be found": (
        "llama.cpp",
        {"-np": -1},
        f"-np must be {WHOLE} 1 to 65,536, not -1",
    ),
    "a cache in words": (
        "llama.cpp",
        {"-cram": "4G"},
        f'-cram must be {WHOLE} -1 to 67,108,864, not "4G"',
    ),
    "a raised two": (
        "llama.cpp",
        {"--ubatch-size": "²"},
        f'--ubatch-size must be {WHOLE} 1 to 16,777,216, not "²"',
    ),
}


@pytest.mark.parametrize("case", BAD_NUMBERS)
def test_a_bad_number(case: str) -> None:
    engine, flags, message = BAD_NUMBERS[case]
    (finding,) = memory_options.counted_number(asked(engine, flags=flags))
    assert (finding.message, finding.hint) == (message, RANGE)


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        ("vllm", {"--gpu-memory-utilization": 0.98, "--max-num-seqs": 1, "--cpu-offload-gb": 0}),
        ("vllm", {"--gpu-memory-utilization": "0.9", "--max-num-batched-tokens": "8192"}),
        ("sglang", {"--mem-fraction-static": 0.85, "--chunked-prefill-size": 4096}),
        ("llama.cpp", {"-ub": 2048, "--parallel": 4, "--cache-ram": -1}),
        ("llama.cpp", {"-cram": "0"}),
    ],
)
def test_good_numbers(engine: str, flags: dict[str, Any]) -> None:
    assert memory_options.counted_number(asked(engine, flags=flags)) == ()


def test_one_option_by_two_names_is_there_twice() -> None:
    (finding,) = memory_options.counted_number(asked("llama.cpp", flags={"-ub": 512, "--ubatch-size": 2048}))
    assert (finding.message, finding.hint) == ("-ub and --ubatch-size are the same option", "leave one of them out")


BAD_VARIABLES: dict[str, tuple[str, str, dict[str, str], str, str]] = {
    "a raised two": (
        "vllm",
        "4x H200",
        {"VLLM_PP_LAYER_PARTITION": "²,60"},
        'VLLM_PP_LAYER_PARTITION must list the layers of each stage, not "²,60"',
        'write it like "30,32"',
    ),
    "one stage too many": (
        "sglang",
        "4x H200",
        {"SGLANG_PP_LAYER_PARTITION": "30,32,"},
        'SGLANG_PP_LAYER_PARTITION must list the layers of each stage, not "30,32,"',
        'write it like "30,32"',
    ),
    "cache without a size": (
        "vllm",
        "none",
        {"VLLM_CPU_KVCACHE_SPACE": "0"},
        'VLLM_CPU_KVCACHE_SPACE must be a whole number of GiB, 1 or more, not "0"',
        "leave it out",
    ),
}


@pytest.mark.parametrize("case", BAD_VARIABLES)
def test_a_bad_variable(case: str) -> None:
    engine, gpus, environment, message, hint = BAD_VARIABLES[case]
    (finding,) = memory_options.counted_number(asked(engine, gpus, environment=environment))
    assert (finding.message, finding.hint) == (message, hint)


def test_good_variables() -> None:
    assert memory_options.counted_number(asked(environment={"VLLM_PP_LAYER_PARTITION": "30, 32"})) == ()
    assert memory_options.counted_number(asked(gpus="none", environment={"VLLM_CPU_KVCACHE_SPACE": "4"})) == ()


UNSEEN = "changes memory use in a way that the plan does not count"
SECOND = "loads a second model, which the plan does not count"


@pytest.mark.parametrize(
    ("engine", "flag", "value", "says"),
    [
        ("vllm", "--kv-cache-memory-bytes", "1G", UNSEEN),
        ("vllm", "--device-memory-utilization", 0.5, UNSEEN),
        ("vllm", "--config", "/etc/vllm.yaml", UNSEEN),
        ("vllm", "--speculative-config.model", "a/b", SECOND),
        ("vllm", "--speculative-config", {"method": "eagle3", "model": "a/b"}, SECOND),
        ("vllm", "-sc", '{"model": "a/b"}', SECOND),
        ("sglang", "--cpu-offload-gb", 20, UNSEEN),
        ("sglang", "--speculative-draft-model-path", "a/b", SECOND),
        ("llama.cpp", "--no-kv-offload", True, UNSEEN),
        ("llama.cpp", "-md", "draft.gguf", SECOND),
        ("vllm", "--enable-lora", True, UNSEEN),
        ("vllm", "--enable-eplb", True, UNSEEN),
        ("vllm", "--eplb-config.num_redundant_experts", 64, UNSEEN),
        ("vllm", "-dcp", 4, UNSEEN),
        ("vllm", "--kv-offloading-size", 100, UNSEEN),
        ("vllm", "--kv-transfer-config", {"kv_connector": "OffloadingConnector"}, UNSEEN),
        ("vllm", "--kv-cache-dtype-skip-layers", ["0", "1"], UNSEEN),
        ("vllm", "--dtype", "float32", UNSEEN),
        ("sglang", "--ep-num-redundant-experts", 64, UNSEEN),
        ("sglang", "--lora-paths", ["/x"], UNSEEN),
        ("sglang", "--enable-hierarchical-cache", True, UNSEEN),
        ("sglang", "--max-total-tokens", 4096, UNSEEN),
        ("sglang", "--enable-paged-experts", True, UNSEEN),
        ("sglang", "--attention-data-parallel-size", 4, UNSEEN),
        ("sglang", "--attn-cp-size", 2, UNSEEN),
        ("sglang", "--moe-dp-size", 2, UNSEEN),
        ("sglang", "--dcp-size", 2, UNSEEN),
        ("sglang", "--moe-dense-tp-size", 1, UNSEEN),
        ("sglang", "--enable-dp-attention", True, UNSEEN),
        ("sglang", "--moe-a2a-backend", "deepep", UNSEEN),
        ("sglang", "--dtype", "float", UNSEEN),
        ("llama.cpp", "--lora", "/x.gguf", UNSEEN),
        ("llama.cpp", "--control-vector", "/x.gguf", UNSEEN),
        ("llama.cpp", "--flash-attn", "off", UNSEEN),
        ("llama.cpp", "-fa", "0", UNSEEN),
        ("llama.cpp", "-fa", True, UNSEEN),
    ],
)
def test_what_is_not_counted_is_refused(engine: str, flag: str, value: Any, says: str) -> None:
    (finding,) = memory_options.uncounted_option(asked(engine, flags={flag: value}))
    assert finding.message == f"{flag} {says}"
    assert finding.hint
    assert finding.source


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        ("vllm", {"--dtype": "bfloat16", "-dcp": 1, "--enable-lora": False}),
        (
            "sglang",
            {"--dtype": "half", "--attn-dp-size": 1, "--moe-a2a-backend": "none", "--ep-num-redundant-experts": 0},
        ),
        ("llama.cpp", {"--flash-attn": "on", "-fa": "auto"}),
        ("llama.cpp", {"--flash-attn": False}),
    ],
)
def test_what_changes_no_memory_passes(engine: str, flags: dict[str, Any]) -> None:
    assert memory_options.uncounted_option(asked(engine, flags=flags)) == ()


DECIDED = "is decided by the plan"


@pytest.mark.parametrize(
    ("engine", "flag", "value"),
    [("vllm", "--quantization", "fp8"), ("vllm", "-q", "fp8"), ("sglang", "--quantization", "modelopt_fp4")],
)
def test_the_format_of_the_weights_is_that_of_the_checkpoint(engine: str, flag: str, value: str) -> None:
    (finding,) = options.decided_option(asked(engine, flags={flag: value}))
    assert (finding.message, finding.hint) == (f"{flag} {DECIDED}", f"set checkpoint {IN_SERVICE}")


def test_drafting_without_a_model_costs_nothing() -> None:
    for said in ({"method": "ngram", "num_speculative_tokens": 3}, '{"method": "ngram", "model": "ngram"}', "{"):
        assert memory_options.uncounted_option(asked(flags={"--speculative-config": said})) == ()
    assert memory_options.uncounted_option(asked("llama.cpp", flags={"-nkvo": False})) == ()


@pytest.mark.parametrize(
    ("engine", "flag"),
    [
        ("llama.cpp", "--device"),
        ("llama.cpp", "-mg"),
        ("vllm", "--device-ids"),
        ("sglang", "--base-gpu-id"),
    ],
)
def test_which_gpus_is_asked_for_in_the_service(engine: str, flag: str) -> None:
    (finding,) = options.decided_option(asked(engine, flags={flag: "1"}))
    assert (finding.message, finding.hint) == (f"{flag} {DECIDED}", f"set gpus {IN_SERVICE}")


@pytest.mark.parametrize(
    ("engine", "name", "message", "hint"),
    [
        (
            "vllm",
            "CUDA_VISIBLE_DEVICES",
            f"CUDA_VISIBLE_DEVICES {DECIDED}",
            f"set gpus {IN_SERVICE}",
        ),
        (
            "sglang",
            "CUDA_DEVICE_ORDER",
            f"CUDA_DEVICE_ORDER {DECIDED}",
            "leave it out: rigup numbers GPUs as NVML does",
        ),
        (
            "llama.cpp",
            "LLAMA_ARG_N_GPU_LAYERS",
            "LLAMA_ARG_N_GPU_LAYERS sets an option of llama.cpp b11434 that the plan does not see",
            "write it in flags",
        ),
    ],
)
def test_variables_do_not_go_around_the_plan(engine: str, name: str, message: str, hint: str) -> None:
    (finding,) = memory_options.decided_variable(asked(engine, environment={name: "0"}))
    assert (finding.message, finding.hint) == (message, hint)


def test_without_gpus_there_are_none_to_choose() -> None:
    assert memory_options.decided_variable(asked(gpus="none", environment={"CUDA_VISIBLE_DEVICES": ""})) == ()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_the_tables_name_options_that_the_engine_has(engine: str) -> None:
    versions = CATALOGUE.engines_by_name[engine].versions
    there = {name for release in versions for name in known_options(engine, release.version)}
    assert {*UNMODELLED[engine], *DRAFTS[engine]} <= there
