"""What is a refusal of the engine's, and what is only the judge's own failure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rigup.facts.bounds import Unreadable
from rigup.facts.judgement import CardUse, Judgement, parse, parse_sizes

MIB = 1 << 20


def said(**more: Any) -> Judgement:
    return parse(json.dumps({"id": "chat", "reached": "ready", **more}), "vllm")


def stopped(by: str, message: str, package: str = "vllm") -> dict[str, Any]:
    return {"by": by, "message": message, "where": [], "package": package}


def test_a_plan_that_is_taken_has_what_the_engine_counts() -> None:
    found = said(
        stages=[{"weights_bytes": 3 * MIB}, {"weights_bytes": 5 * MIB}],
        cache={"tokens": 1000, "requests": 1.5, "blocks": 3},
        log=["INFO Using FLASH_ATTN attention backend out of potential backends"],
    )
    assert (found.refusal, found.failed) == ("", "")
    assert (found.weights_mib, found.tokens, found.requests) == (5, 1000, 1.5)
    assert found.kernels == {"attention": ("FLASH_ATTN",)}


@pytest.mark.parametrize(
    ("row", "refusal"),
    [
        (
            {"reached": "weights", "stopped": stopped("ValueError", "To serve at least one request\nmore")},
            "To serve at least one request",
        ),
        (
            {
                "reached": "arguments",
                "stopped": stopped(
                    "ValidationError",
                    "1 validation error for VllmConfig\n  Value error, no such thing [type=value_error, input_value=x]",
                    "pydantic",
                ),
            },
            "no such thing",
        ),
        (
            {
                "reached": "nothing",
                "stopped": stopped("SystemExit", "2", "/"),
                "log": ["usage: vllm", "vllm: error: unrecognized arguments: --no-such"],
            },
            "unrecognized arguments: --no-such",
        ),
        (
            {
                "reached": "configuration",
                "stopped": stopped("AssertionError", "layout only supports fp8 kv-cache, got auto"),
            },
            "layout only supports fp8 kv-cache, got auto",
        ),
    ],
)
def test_the_engines_own_words_refuse(row: dict[str, Any], refusal: str) -> None:
    found = said(**row)
    assert (found.refusal, found.failed) == (refusal, "")


@pytest.mark.parametrize(
    "row",
    [
        {"reached": "configuration", "stopped": stopped("AttributeError", "no attribute x")},
        {"reached": "configuration", "stopped": stopped("ValueError", "x", "torch")},
        {"reached": "configuration", "stopped": stopped("RuntimeError", "FlashInfer would compile x here", "rigup")},
        # what was not repacked may be why
        {
            "reached": "configuration",
            "stopped": stopped("ValueError", "Fp8MoEMethod uses the new logic"),
            "not_repacked": {"Fp8MoEMethod: RuntimeError (x.py:1)": 3},
        },
    ],
)
def test_what_the_judge_cannot_do_is_not_a_refusal(row: dict[str, Any]) -> None:
    found = said(**row)
    assert found.refusal == ""
    assert found.failed.startswith(f"{row['stopped']['by']}: ")


def test_sglang_tells_the_kernels_that_it_settled_on() -> None:
    settled = {
        "attention_backend": "fa3",
        "moe_runner_backend": "auto",
        "context_length": -1,
        "overlap": True,
        "x": None,
    }
    assert said(settled=settled).kernels == {"attention": ("fa3",)}


def test_what_ends_after_the_cache_is_laid_out_is_nothing() -> None:
    found = said(reached="graphs", stopped=stopped("ValueError", "requires a tokenizer"))
    assert (found.refusal, found.failed) == ("", "")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"reached": 3}', '{"reached": "ready", "stages": [{}]}', "x" * 9])
def test_anything_else_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable, match="the judge's answer"):
        parse(text, "vllm")


LOADED = """ggml_cuda_init: found 2 CUDA devices (simulated):
model CUDA0 10737418240 1073741824 536870912
model CUDA1 10737418240 2147483648 536870912
model Host 1000 0 2000
own-draft CUDA1 10737418240 104857600 209715200
exit 0
"""


def test_sizes_of_llama_cpp_are_those_of_the_card_with_the_least_room() -> None:
    found = parse_sizes(LOADED, (3, 7), (20_000, 20_000), (400, 400))
    assert found == Judgement(weights_mib=10240, fullest=CardUse(10240, 2048 + 100, 512 + 200, 400))
    fuller = parse_sizes(LOADED, (3, 7), (13_000, 20_000), (400, 400))
    assert fuller.fullest == CardUse(10240, 1024, 512, 400)


def test_sizes_beyond_what_is_free_are_a_refusal() -> None:
    found = parse_sizes(LOADED, (3, 7), (20_000, 13_000), (400, 400))
    assert found.refusal == (
        "GPU 7 needs 13.2 GiB (10.0 of weights, 2.1 of KV cache, 0.7 of buffers, 0.4 counted for CUDA), "
        "and 12.7 GiB are free"
    )
    assert not parse_sizes(LOADED, (3, 7), (), (400, 400)).refusal, "what is free is not known"


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("error: invalid argument: --no-such\nexit 2\n", "error: invalid argument: --no-such"),
        (
            'error while handling argument "--ctx-size": stoi\n\nusage:\nexit 2\n',
            'error while handling argument "--ctx-size": stoi',
        ),
        (
            "0.00.1 E llama_model_load: error loading model: unknown model architecture: 'new'\nexit 1\n",
            "unknown model architecture: 'new'",
        ),
        (
            "0.1 E llama_init_from_model: quantized V cache requires Flash Attention\nexit 1\n",
            "quantized V cache requires Flash Attention",
        ),
    ],
)
def test_what_llama_cpp_does_not_take_is_in_its_words(text: str, refusal: str) -> None:
    assert parse_sizes(text, (0,), (), (0,)) == Judgement(refusal=refusal)


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("", "no answer"),
        (
            "E llama_model_load: error loading model: llama_model_loader: failed to load model from a.gguf\nexit 1\n",
            "E llama_model_load: error loading model: llama_model_loader: failed to load model from a.gguf",
        ),
        ("model CUDA0 1 2 3\nggml.c:83: GGML_ASSERT(a) failed\nexit 134\n", "ggml.c:83: GGML_ASSERT(a) failed"),
        ("model CUDA0 1 2 3\n", "model CUDA0 1 2 3"),
        (
            'error while handling argument "--slot-save-path": not a directory: /var/x\nexit 2\n',
            'error while handling argument "--slot-save-path": not a directory: /var/x',
        ),
    ],
)
def test_a_judge_of_llama_cpp_that_fails_refuses_nothing(text: str, failed: str) -> None:
    assert parse_sizes(text, (0,), (), (0,)) == Judgement(failed=failed)


def test_absurd_sizes_are_unreadable() -> None:
    with pytest.raises(Unreadable, match="CUDA0: a number is too large"):
        parse_sizes(f"model CUDA0 {10**20} 0 0\nexit 0\n", (0,), (), (0,))


def test_an_assertion_of_sglang_about_tensors_without_values_refuses_nothing() -> None:
    row = {"id": "chat", "reached": "configuration", "stopped": stopped("AssertionError", "scales differ", "sglang")}
    assert parse(json.dumps(row), "sglang") == Judgement(failed="AssertionError: scales differ")
    assert parse(json.dumps(row | {"stopped": stopped("ValueError", "no", "sglang")}), "sglang").refusal == "no"
