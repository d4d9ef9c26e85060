"""Asks an OpenAI-compatible endpoint as a user would: the answer is passed on while it comes, and its pace measured."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rigup.errors import HostFailed, InputError
from rigup.programs.bench.bench_target import Target, complaint, parsed
from rigup.programs.http_reader import CHUNK, Response
from rigup.programs.http_reader import printable as one_line

SILENT_SECONDS = 600.0
"""A long prompt may be read for minutes before the first token."""
LOOK_SECONDS = 0.25
MOST_ANSWER = 1 << 26
REASONING = ("reasoning_content", "reasoning")
"""Fields of a delta with what a model thinks before its answer."""

Message = dict[str, str]


@dataclass
class ChatAnswer:
    """An answer as far as it came. Times in seconds: until the first token, between first and last, all of it.

    tokens: as the engine counts them, or the pieces that came where it does not. finish: "stop", "length", ..., or
    "cancelled".
    """

    text: str = ""
    reasoning: str = ""
    tokens: int = 0
    counted: bool = False
    first_seconds: float = 0.0
    streaming_seconds: float = 0.0
    seconds: float = 0.0
    finish: str = ""

    @property
    def tokens_per_second(self) -> float | None:
        """The pace after the first token; None for an answer that came at once."""
        return (self.tokens - 1) / self.streaming_seconds if self.tokens > 1 and self.streaming_seconds > 0 else None

    def as_json(self) -> dict[str, Any]:
        """In plain values."""
        pace = self.tokens_per_second
        return {
            "text": self.text,
            "reasoning": self.reasoning or None,
            "tokens": self.tokens,
            "finish": self.finish or None,
            "seconds": round(self.seconds, 3),
            "first_token_seconds": round(self.first_seconds, 3),
            "tokens_per_second": pace and round(pace, 2),
        }


def ask(
    url: str,
    key: str | None,
    model: str,
    messages: Sequence[Message],
    show: Callable[[str, bool], None],
    stopped: Callable[[], bool],
    max_tokens: int | None = None,
    where: str = "",
) -> ChatAnswer:
    """Sends the messages and passes each piece of the answer to `show`, with whether it is reasoning.

    stopped: whether the user wants no more. where: in front of messages. Raises HostFailed where the endpoint refuses,
    ends early or is silent for SILENT_SECONDS; InputError where it refuses the key.
    """
    request: dict[str, Any] = {"model": model, "messages": list(messages), "stream": True}
    request |= {"stream_options": {"include_usage": True}}
    request |= {"max_tokens": max_tokens} if max_tokens is not None else {}
    body = json.dumps(request, separators=(",", ":")).encode()
    target, answer, began = Target.of(url, key), ChatAnswer(), time.monotonic()
    try:
        for content in _events(target, body, stopped):
            _take(content, answer, began, show)
            if answer.finish == "cancelled":
                break
    except _Unusable as error:
        raise (InputError if error.of_key else HostFailed)(f"{where}: {error}", error.hint) from None
    except (OSError, ValueError) as error:
        raise HostFailed(f"{where}: {error or type(error).__name__}", "check the service: rigup status") from None
    if stopped():
        answer.finish = "cancelled"
    answer.seconds = time.monotonic() - began
    return answer


class _Unusable(Exception):
    """Raised for an answer that is an error. of_key: about the API key."""

    def __init__(self, message: str, of_key: bool = False) -> None:
        super().__init__(message)
        self.of_key = of_key
        self.hint = (
            "restart it with the current key of its host: rigup restart" if of_key else "check the service: rigup logs"
        )


def _events(target: Target, body: bytes, stopped: Callable[[], bool]) -> Iterator[Any]:
    """The contents of the events of an answer, until its end or until the user wants no more."""
    response = Response(MOST_ANSWER)
    with socket.create_connection((target.host, target.port), SILENT_SECONDS) as connection:
        connection.sendall(target.head("/v1/chat/completions", len(body)) + body)
        connection.settimeout(LOOK_SECONDS)
        heard = time.monotonic()
        while not response.ended:
            if stopped():
                return
            try:
                data = connection.recv(CHUNK)
            except TimeoutError:
                if time.monotonic() - heard > SILENT_SECONDS:
                    raise ValueError(f"no data for {SILENT_SECONDS:.0f} s") from None
                continue
            heard = time.monotonic()
            events = response.feed(data) if data else []
            for event in events:
                if event == b"[DONE]":
                    return
                yield parsed(event)
            if not data:
                response.close()
                break
    if response.status and response.status != 200:
        raise _Unusable(complaint(response.status, response.body), response.status in (401, 403))
    raise ValueError("the answer was cut off" if response.status else "the connection was closed without an answer")


def _take(content: Any, answer: ChatAnswer, began: float, show: Callable[[str, bool], None]) -> None:
    """Adds one event to the answer. Raises _Unusable for an error of the engine's."""
    if not isinstance(content, dict):
        return
    if (error := content.get("error")) is not None:
        raise _Unusable(one_line(error.get("message") if isinstance(error, dict) else error))
    usage = content.get("usage")
    if isinstance(usage, dict) and isinstance(tokens := usage.get("completion_tokens"), int) and tokens > 0:
        answer.tokens, answer.counted = tokens, True
    choices = content.get("choices")
    for choice in choices[:1] if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            continue
        thought = next((delta[name] for name in REASONING if isinstance(delta.get(name), str)), "")
        said = delta["content"] if isinstance(delta.get("content"), str) else ""
        if thought or said:
            now = time.monotonic() - began
            answer.first_seconds = answer.first_seconds or now
            answer.streaming_seconds = now - answer.first_seconds
            answer.tokens += not answer.counted
        answer.reasoning += thought
        answer.text += said
        for text, is_thought in ((thought, True), (said, False)):
            if text:
                show(text, is_thought)
        if isinstance(finish := choice.get("finish_reason"), str):
            answer.finish = one_line(finish, 40)
