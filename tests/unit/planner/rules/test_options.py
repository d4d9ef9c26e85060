"""The user's own flags and variables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.planner.candidate import Candidate
from rigup.planner.rules import options
from tests.unit.planner.rules.builder import candidate

LAST, IN_SERVICE = "was the last version with it", "in the service instead"

FP8, GGUF = "MiniMaxAI/MiniMax-M2.5", "unsloth/MiniMax-M2.5-GGUF"


def asked(engine: str = "vllm", version: str | None = None, **service: Any) -> Candidate:
    repo, quant = (GGUF, "UD-IQ2_M") if engine == "llama.cpp" else (FP8, None)
    return candidate("4x H200", repo, engine, version, quant, parallel={"tensor": 4}, service=service)


def test_a_known_flag_passes() -> None:
    assert options.unknown_option(asked(flags={"--enforce-eager": True, "--no-enable-prefix-caching": True})) == ()
    assert options.unknown_option(asked("llama.cpp", flags={"-ub": 1024, "--load-mode": "mmap"})) == ()


def test_an_unknown_flag_is_refused_with_the_nearest() -> None:
    (finding,) = options.unknown_option(asked(flags={"--enforce-eagerly": True}))
    assert finding.message == "vLLM 0.33.0 has no option --enforce-eagerly"
    assert finding.hint == "try --enforce-eager"


def test_every_unknown_flag_is_reported() -> None:
    assert len(options.unknown_option(asked(flags={"--nonsense-one": 1, "--nonsense-two": 2}))) == 2


def test_dotted_and_underscored_spellings_are_the_engines_own() -> None:
    flags = {"--compilation-config.cudagraph_mode": "PIECEWISE", "--max_num_batched_tokens": 4096}
    assert options.unknown_option(asked(flags=flags)) == ()


@pytest.mark.parametrize(
    ("engine", "version", "flag", "last", "hint"),
    [
        ("vllm", "0.33.0", "--swap-space", "0.17.1", None),
        ("sglang", "0.5.23", "--nsa-prefill-backend", "0.5.19", "use the option --dsa-prefill-backend"),
        ("sglang", "0.5.23", "--cuda-graph-max-bs", "0.5.19", "use the option --cuda-graph-max-bs-decode"),
    ],
)
def test_a_flag_that_is_gone_names_its_last_version_and_successor(
    engine: str, version: str, flag: str, last: str, hint: str | None
) -> None:
    (finding,) = options.unknown_option(asked(engine, version, flags={flag: "x"}))
    assert finding.message.endswith(f"; {last} {LAST}")
    assert hint is None or finding.hint == hint


def test_removed_llama_cpp_switches_point_to_load_mode() -> None:
    (finding,) = options.unknown_option(asked("llama.cpp", flags={"--no-mmap": True}))
    assert finding.hint == "use the option --load-mode"


def test_a_dead_variable_is_refused_where_it_is_dead() -> None:
    environment = {"VLLM_USE_FLASHINFER_MOE_FP4": "0"}
    assert options.unknown_variable(asked("vllm", "0.23.0", environment=environment)) == ()
    (finding,) = options.unknown_variable(asked("vllm", "0.24.0", environment=environment))
    assert finding.message == (f"vLLM 0.24.0 has no variable VLLM_USE_FLASHINFER_MOE_FP4; 0.23.0 {LAST}")
    assert finding.hint == "use the option --moe-backend"


def test_variables_of_libraries_pass() -> None:
    environment = {"NCCL_P2P_LEVEL": "PHB", "CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "8"}
    assert options.unknown_variable(asked(environment=environment)) == ()


@pytest.mark.parametrize(
    ("engine", "flag", "value", "hint"),
    [
        ("vllm", "--moe-backend", "tritton", 'try "triton"'),
        ("sglang", "--reasoning-parser", "minimax_m2", 'try "minimax"'),
        ("vllm", "--tool-call-parser", "minimax-m2", 'try "minimax_m2"'),
    ],
)
def test_a_fixed_choice_is_checked(engine: str, flag: str, value: str, hint: str) -> None:
    (finding,) = options.unknown_value(asked(engine, flags={flag: value}))
    assert f'{flag} does not accept "{value}"' in finding.message
    assert finding.hint == hint


@pytest.mark.parametrize("flag", ["--tool-call-parser", "--reasoning-parser"])
def test_sglang_finds_its_parsers_itself_from_0_5_12_on(flag: str) -> None:
    assert options.unknown_value(asked("sglang", "0.5.12", flags={flag: "auto"})) == ()
    (finding,) = options.unknown_value(asked("sglang", "0.5.11", flags={flag: "auto"}))
    assert finding.message.endswith(f'{flag} does not accept "auto"')


def test_what_the_plan_decides_is_asked_for_in_the_service() -> None:
    for engine, flag, key in (
        ("vllm", "--tensor-parallel-size", "tensor_parallel"),
        ("sglang", "--context-length", "context"),
        ("llama.cpp", "-ngl", "offload"),
    ):
        (finding,) = options.decided_option(asked(engine, flags={flag: 4}))
        assert finding.hint == f"set {key} {IN_SERVICE}"
    assert options.decided_option(asked(flags={"--gpu-memory-utilization": 0.92})) == ()


def test_what_the_plan_decides_is_known_with_underscores_too() -> None:
    (finding,) = options.decided_option(asked(flags={"--api_key": "sk-1"}))
    assert finding.message == "--api_key is decided by the plan"


@pytest.mark.parametrize(
    ("engine", "flag", "hint"),
    [
        (
            "sglang",
            "--admin-api-key",
            "leave it out, and write api_key_file in the service: that key never appears on a command line",
        ),
        (
            "vllm",
            "--hf_token",
            "leave it out: the service downloads nothing; rigup itself takes a token from hub_token_file in group_data",
        ),
        (
            "llama.cpp",
            "-hft",
            "leave it out: the service downloads nothing; rigup itself takes a token from hub_token_file in group_data",
        ),
        (
            "sglang",
            "--ssl-keyfile-password",
            "leave it out: use a key without a password, in a file that only the service can read",
        ),
        ("vllm", "--some-new-secret", "leave it out"),
    ],
)
def test_a_secret_does_not_go_into_the_command_line(engine: str, flag: str, hint: str) -> None:
    (finding,) = options.secret_in_command(asked(engine, flags={flag: "AdminSecret99"}))
    assert finding.message == f"{flag} would put a secret on the command line, where every user of the host can read it"
    assert finding.hint == hint
    assert "AdminSecret99" not in finding.model_dump_json()


def test_what_only_sounds_like_a_secret_may_stand_there() -> None:
    flags = {"--max-num-batched-tokens": 8192, "--ssl-keyfile": "/etc/ssl/x.key", "--api-key": "one finding is enough"}
    assert options.secret_in_command(asked(flags=flags)) == ()


def test_a_key_does_not_go_into_the_environment() -> None:
    (finding,) = options.key_in_environment(asked(environment={"VLLM_API_KEY": "sk-1", "NCCL_DEBUG": "INFO"}))
    assert "VLLM_API_KEY" in finding.message
    assert "sk-1" not in finding.model_dump_json()
    assert finding.hint == f"set api_key_file {IN_SERVICE}"


@pytest.mark.parametrize("name", ["AWS_SESSION_TOKEN", "WANDB_API_KEY", "MY_PASSWORD", "SGLANG_S3_SECRET_ACCESS_KEY"])
def test_no_secret_goes_into_the_environment(name: str) -> None:
    (finding,) = options.key_in_environment(asked("sglang", environment={name: "hidden-99"}))
    assert finding.message == f"{name} would put a secret in the unit, where every user of the host can read it"
    assert finding.hint
    assert "hidden-99" not in finding.model_dump_json()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_no_variable_of_an_engine_only_sounds_like_a_secret(engine: str) -> None:
    known = asked(engine).known_variables
    refused = options.key_in_environment(asked(engine, environment=dict.fromkeys(sorted(known), "1")))
    assert {finding.message.split()[0] for finding in refused} <= set(options.KEY_VARIABLES)


def test_sparse_attention_flags_mean_nothing_to_minimax_m2() -> None:
    (finding,) = options.sparse_attention(asked("sglang", "0.5.9", flags={"--nsa-prefill-backend": "flashmla_auto"}))
    assert "no effect" in finding.message


def test_expandable_segments_warn_with_tensor_parallelism() -> None:
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert options.expandable_segments(asked(environment=environment))
    alone = candidate("1x H200", FP8, service={"environment": environment})
    assert options.expandable_segments(alone) == ()


def test_a_version_that_was_not_read_is_held_against_the_newest_before_it() -> None:
    read = asked(flags={"--watchdog-config": "{}", "--nonsense": 1})
    newer = replace(read, release=read.release.model_copy(update={"version": "0.34.0"}))
    assert options.unread_version(read) == ()
    (finding,) = options.unread_version(newer)
    assert "assumes those of 0.33.0" in finding.message
    assert [found.message for found in options.unknown_option(newer)] == ["vLLM 0.34.0 has no option --nonsense"]


def test_sampling_parameters_are_known_by_name() -> None:
    (finding,) = options.unknown_sampling(asked(sampling={"temprature": 0.7}))
    assert finding.hint == 'try "temperature"'
    assert options.unknown_sampling(asked(sampling={"temperature": 0.7, "top_k": 40})) == ()


def test_sampling_that_a_chat_request_does_not_get_is_told() -> None:
    reached = {"temperature": 0.7, "top_k": 40}
    assert options.sampling_of_chat(asked("sglang", sampling=reached)) == ()
    assert options.sampling_of_chat(asked("vllm", sampling={"presence_penalty": 1.5})) == ()
    (finding,) = options.sampling_of_chat(asked("sglang", sampling={**reached, "presence_penalty": 1.5}))
    assert finding.message == "SGLang ignores sampling.presence_penalty in chat requests"
    (finding,) = options.sampling_of_chat(replace(asked("sglang", sampling=reached), build="image"))
    assert finding.message == "in an image, SGLang ignores sampling.temperature and sampling.top_k in chat requests"
