"""The question after a start, and which answers pass."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.operations.service import health
from rigup.operations.service.reply import Reply
from tests.unit.local_host import LocalHost
from tests.unit.planner.asking import decided

SMOL = {"model": "SmolLM2-135M-Instruct"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks a service that says this, and returns the text of the answer."""

    def ask(said: Reply, **service: Any) -> str:
        host: Any = LocalHost()
        monkeypatch.setattr(health, "_ask_once", lambda host, request: said)
        monkeypatch.setattr(health, "keep_answer", lambda host, service, reply: health.Answer(
            host.name, service, reply.text, reply.tokens, reply.seconds, reply.tokens_per_second
        ))  # fmt: skip
        return health.ask_after_start(host, decided([], {**SMOL, **service})).text

    return ask


def answering(text: str, **fields: Any) -> Reply:
    return Reply(state="answered", answer=text, tokens=9, seconds=0.5, tokens_per_second=18.0, **fields)


@pytest.mark.parametrize(
    ("said", "service"),
    [
        (answering("The capital of France is Paris."), {}),
        (answering("PARIS!"), {}),
        (Reply(state="answered", reasoning="Okay, the capital is Paris. So", tokens=9), {}),
        (answering("Der Der Der"), {"expected_answer": ""}),
        (answering("forty-two"), {"expected_answer": "Forty"}),
    ],
    ids=["a sentence", "capitals", "thoughts", "any answer", "another word"],
)
def test_an_answer_that_makes_sense_passes(said: Reply, service: dict[str, Any], asked: Any) -> None:
    assert asked(said, **service) == said.text


def test_nonsense_fails_the_start_and_says_what_was_expected(asked: Any) -> None:
    with pytest.raises(HostFailed) as caught:
        asked(answering("Der\nDer " * 100))
    assert caught.value.message == (
        'box: chat: health check failed: asked "What is the capital of France? Answer in one sentence.", it answered '
        f'"{("Der " * 100)[:120]}", without "Paris" (services.chat.expected_answer)'
    )
