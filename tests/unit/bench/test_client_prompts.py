"""Prompts have exactly the tokens that were asked for, and no two begin alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rigup.bench.client import LevelRequest
from rigup.programs.bench.bench_prompts import DIFFERENT, Form, Prompts
from tests.unit.bench.conftest import Engine, measure

IDS = list(range(100, 3000))


def bodies(form: Form, length: int, count: int) -> list[dict[str, Any]]:
    prompts = Prompts(form, length, seed=1)
    return [json.loads(prompts.body(7)) for _ in range(count)]


def test_a_body_asks_for_what_is_measured() -> None:
    (body,) = bodies(Form("m", IDS), 5, 1)
    prompt = body.pop("prompt")
    assert len(prompt) == 5
    assert set(prompt) <= set(IDS)
    options = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, "temperature": 0}
    assert body == {"model": "m", "max_tokens": 7, **options}


def test_words_stand_for_what_the_engine_adds_too() -> None:
    (plain,) = bodies(Form("m", ("a", "be"), extra=2), 10, 1)
    assert len(plain["prompt"].split(" ")) == 8
    (chat,) = bodies(Form("m", ("a", "be"), chat=True, ignore_eos=False, usage=False), 10, 1)
    assert len(chat["messages"][0]["content"].split(" ")) == 10
    assert set(chat) == {"model", "messages", "stream", "max_tokens", "temperature"}


def test_no_two_prompts_begin_alike_and_they_never_run_out() -> None:
    prompts = Prompts(Form("m", IDS), 16, seed=1)
    written = [prompts.body(1) for _ in range(DIFFERENT + 10)]
    assert len({body[:150] for body in written}) == DIFFERENT + 10
    assert all(len(json.loads(body)["prompt"]) == 16 for body in written[-20:])


@pytest.mark.parametrize("style", ["vllm", "sglang", "llama.cpp"])
def test_engines_with_a_tokenizer_get_token_ids(engine: Callable[..., Engine], style: str) -> None:
    result = measure(engine(style=style).url, LevelRequest(2, 1000, 3, requests=4))
    (level,) = result["levels"]
    assert (result["endpoint"]["engine"], result["endpoint"]["prompts"]) == (style, "token ids")
    assert (level["prompt_tokens"], level["output_tokens"]) == ({"least": 1000, "most": 1000}, {"least": 3, "most": 3})
    assert result["notes"] == []


def test_llama_cpps_router_is_asked_about_the_model_and_has_none_loaded(engine: Callable[..., Engine]) -> None:
    router = engine(style="llama.cpp", router=True, context=4096, spare_requests=1, metrics_first=2)
    result = measure(router.url, LevelRequest(2, 100, 20, requests=4))
    assert (result["endpoint"]["prompts"], result["endpoint"]["context"]) == ("token ids", 4096)
    assert result["levels"][0]["engine"] is not None  # its metrics


@pytest.mark.parametrize("chat", [False, True], ids=["completions", "chat"])
def test_others_get_words_that_the_engine_has_counted(engine: Callable[..., Engine], chat: bool) -> None:
    result = measure(engine(style="plain").url, LevelRequest(2, 1000, 3, requests=4), chat=chat)
    (level,) = result["levels"]
    assert result["endpoint"]["prompts"] == "words counted by the engine"
    assert level["prompt_tokens"] == {"least": 1000, "most": 1000}
    assert result["notes"] == ["the endpoint does not support ignore_eos; answers may be shorter than requested"]
