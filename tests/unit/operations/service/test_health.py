"""The question after a start, and which answers pass."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.commands.swap_groups import as_groups, taking_turns
from rigup.errors import HostFailed, HostLost
from rigup.operations.service import health
from rigup.operations.service.answer import Answer
from rigup.operations.service.reply import Reply
from rigup.programs import ask
from rigup.systemd.release import release_of
from tests.nodes import unbound
from tests.unit.local_host import LocalHost
from tests.unit.planner.asking import decided, side_by_side

SMOL = {"model": "SmolLM2-135M-Instruct"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks a service that says this, and returns the text of the answer."""

    def ask(said: Reply, **service: Any) -> str:
        host: Any = LocalHost()
        monkeypatch.setattr(health, "_ask_once", lambda host, request: judged(said, request))
        monkeypatch.setattr(health, "keep_answer", lambda host, service, reply: Answer(
            host.name, service, reply.text, reply.tokens, reply.seconds, reply.tokens_per_second
        ))  # fmt: skip
        return health.ask_after_start(host, decided([], {**SMOL, **service})).text

    return ask


def judged(said: Reply, request: dict[str, Any]) -> Reply:
    """What `ask.py` makes of an answer."""
    reply = said.model_dump()
    found = ask.judged(reply, request["question"], request["expected"].get(request["model"]))
    return said if found is reply else Reply.model_validate(found)


def answering(text: str, **fields: Any) -> Reply:
    return Reply(state="answered", answer=text, tokens=9, seconds=0.5, tokens_per_second=18.0, **fields)


@pytest.mark.parametrize(
    ("said", "service"),
    [
        (answering("The capital of France is Paris."), {}),
        (answering("PARIS!"), {}),
        (Reply(state="answered", reasoning="Okay, the capital is Paris. So", tokens=9), {}),
        (answering("Der Der Der"), {"expected_answer": ""}),
        (answering("duct" * 64), {"expected_answer": None}),
        (answering("forty-two"), {"expected_answer": "Forty"}),
    ],
    ids=["a sentence", "capitals", "thoughts", "any answer", "even one that repeats itself", "another word"],
)
def test_an_answer_that_makes_sense_passes(said: Reply, service: dict[str, Any], asked: Any) -> None:
    assert asked(said, **service) == said.text


def test_a_host_that_is_gone_ends_the_check_long_before_the_service_had_to_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    def gone(*_: Any) -> Reply:
        raise ConnectionResetError

    monkeypatch.setattr(health, "_ask_once", gone)
    monkeypatch.setattr(health.remote, "reconnect", lambda host: tried.append(host.name))
    monkeypatch.setattr(health, "LOST_SECONDS", 0.5)
    host: Any = LocalHost()
    with pytest.raises(HostLost, match="stopped responding") as caught:
        health.ask_service(host, decided([], SMOL), wait_s=3600)
    assert tried and "is on" in (caught.value.hint or "")


def test_a_connection_that_comes_back_is_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    replies: list[Any] = [ConnectionResetError(), ConnectionResetError(), answering("Paris")]

    def asked_once(*_: Any) -> Reply:
        reply = replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        assert isinstance(reply, Reply)
        return reply

    monkeypatch.setattr(health, "_ask_once", asked_once)
    monkeypatch.setattr(health.remote, "reconnect", lambda _: True)
    host: Any = LocalHost()
    host.connector_data = {}
    assert health.ask_service(host, decided([], SMOL)).text == "Paris"


def test_nonsense_fails_the_start_and_says_what_was_expected(asked: Any) -> None:
    with pytest.raises(HostFailed) as caught:
        asked(answering("Der\nDer " * 100))
    assert caught.value.message == (
        f'box: chat: health check failed: asked "{health.QUESTION}", it answered '
        f'"{("Der " * 100)[:120]}", without "Paris" (services.chat.expected_answer)'
    )


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks two models that take turns, each of which says what is given, and returns the requests."""

    def ask(**said: str) -> list[dict[str, Any]]:
        services = {name: {**SMOL, "swap": True, "served_name": f"m-{name}"} for name in ("first", "second")}
        (plan,) = as_groups(taking_turns(side_by_side(services, [], 64)))
        requests: list[dict[str, Any]] = []

        def once(host: Any, request: dict[str, Any]) -> Reply:
            requests.append(request)
            return judged(answering(said.get(request["model"].removeprefix("m-"), "Paris")), request)

        monkeypatch.setattr(health, "_ask_once", once)
        monkeypatch.setattr(health, "keep_answer", lambda host, service, reply: Answer(
            host.name, service, reply.text, reply.tokens, reply.seconds, reply.tokens_per_second
        ))  # fmt: skip
        host: Any = LocalHost()
        health.ask_after_start(host, plan)
        return requests

    return ask


def test_models_that_take_turns_are_all_asked_and_the_first_one_stays(turns: Any) -> None:
    requests = turns()
    assert [request["model"] for request in requests] == ["m-second", "m-first"]
    assert {(request["unit"], request["swaps"]) for request in requests} == {("rigup-first.service", False)}
    assert all(request["timeout_s"] > health.ANSWER_SECONDS for request in requests)


def test_nonsense_of_one_that_takes_turns_names_its_own_service(turns: Any) -> None:
    with pytest.raises(HostFailed, match=r"second: health check failed: .*services\.second\.expected_answer"):
        turns(second="Der Der")


def test_a_service_that_takes_turns_is_asked_later_for_what_is_resident() -> None:
    services = {name: {**SMOL, "swap": True, "served_name": f"m-{name}"} for name in ("first", "second")}
    (plan,) = as_groups(taking_turns(side_by_side(services, [], 64)))
    assert health.request_of(plan)["swaps"] is True
    assert health.request_of(decided([], SMOL))["swaps"] is False


@pytest.mark.parametrize("text", ["duct" * 64, "Sure. " + "!" * 60, "Der " * 40, "\n" * 64], ids=repr)
def test_a_service_that_expects_no_word_does_not_start_on_one_piece_over_and_over(text: str, asked: Any) -> None:
    with pytest.raises(HostFailed, match=r" over and over \(services\.chat\.expected_answer\)$"):
        asked(answering(text), expected_answer="")


def test_a_release_is_asked_for_what_it_was_made_to_answer() -> None:
    for service, expected, tokens in (
        ({}, "Paris", health.GREETING_TOKENS),
        ({"expected_answer": ""}, "", health.JUDGED_TOKENS),
        ({"expected_answer": None}, None, 1),
    ):
        plan = decided([], {**SMOL, **service})
        found = health.expected_of("chat", release_of(unbound(plan), "build").manifest)
        of_chat = {} if expected is None else {plan.served_name: {"service": "chat", "answer": expected}}
        assert found == of_chat
        request = health.request_of(plan, found)
        assert (request["expected"], request["max_tokens"]) == (of_chat, tokens)


def test_a_release_of_an_earlier_rigup_may_answer_anything() -> None:
    assert health.expected_of("chat", {"command": ["llama-server", "--alias", "smol"]}) == {}


def test_models_that_take_turns_each_have_their_own_answer() -> None:
    services = {name: {**SMOL, "swap": True, "served_name": f"m-{name}"} for name in ("first", "second")}
    services["second"]["expected_answer"] = "Berlin"
    (plan,) = as_groups(taking_turns(side_by_side(services, [], 64)))
    assert health.expected_of("first", release_of(unbound(plan), "build").manifest) == {
        "m-first": {"service": "first", "answer": "Paris"},
        "m-second": {"service": "second", "answer": "Berlin"},
    }
