"""What is a refusal of the engine's, and what is only the judge's own failure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rigup.facts.bounds import Unreadable
from rigup.facts.judgement import Judgement, parse

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
