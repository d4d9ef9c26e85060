"""An endpoint in trouble: nothing is hidden, and what was measured by then is kept."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rigup.bench.client import LevelRequest
from rigup.errors import HostFailed, InputError, RigupError, Unreachable
from tests.unit.bench.conftest import Engine, measure

FEW = LevelRequest(2, 32, 5, requests=6)
NAMED = LevelRequest(4, 16, 8, seconds=1)


def said(error: RigupError, engine: Engine | None = None) -> tuple[str, str | None]:
    return error.message.replace(engine.url if engine else "\0", "URL"), error.hint


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unreachable) as failed:
            measure(url, FEW)
    assert said(failed.value) == (f"{url}: connection refused", "check that the service is running")


def test_something_else_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
                connection.recv(1000)

        thread = threading.Thread(target=greet)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(HostFailed) as failed:
            measure(url, FEW)
        thread.join()
    message, hint = said(failed.value)
    assert message.startswith(f"{url}/v1/models: ")
    assert hint == "check that the address is an engine's API"


def test_a_key_that_is_wrong_or_lacking_and_a_model_that_is_not_there(engine: Callable[..., Engine]) -> None:
    mock = engine(key="right", spare_requests=1, metrics_first=2)
    cases = {
        (None, None): ("URL requires an API key", "name the file with the key: --api-key-file"),
        ("wrong", None): ("URL rejects this API key", "check the service's key"),
        ("right", "gpt-5"): ('model "gpt-5" is not served at URL', "choose from: mock"),
    }
    for (key, model), expected in cases.items():
        with pytest.raises(InputError) as failed:
            measure(mock.url, FEW, key=key, model=model)
        assert said(failed.value, mock) == expected
    result = measure(mock.url, FEW, key="right", model="mock")
    assert result["levels"][0]["requests"] == {"counted": 6, "all": 6, "failed": 0, "broken_off": 0}
    assert result["levels"][0]["engine"]["running_most"] >= 0  # the metrics were asked for with the key, too


@pytest.mark.parametrize("aliases", [["mock:8b", 7, ""], 5, {"a": 1}])
def test_a_model_is_also_what_its_aliases_say(engine: Callable[..., Engine], aliases: Any) -> None:
    mock = engine(aliases=aliases)
    named = "mock:8b" if isinstance(aliases, list) else "mock"
    assert measure(mock.url, FEW, model=named)["levels"][0]["requests"]["failed"] == 0
    with pytest.raises(InputError) as failed:
        measure(mock.url, FEW, model="gpt-5")
    assert said(failed.value, mock)[1] == f"choose from: {', '.join(dict.fromkeys(('mock', named)))}"


def test_more_tokens_than_the_model_takes(engine: Callable[..., Engine]) -> None:
    mock = engine(context=1000)
    with pytest.raises(InputError) as failed:
        measure(mock.url, LevelRequest(1, 990, 11, requests=1))
    why = "990 prompt and 11 answer tokens are 1001; mock accepts 1000"
    assert said(failed.value) == (why, "reduce --input or --output")
    levels = (LevelRequest(1, 900, 11, requests=1), LevelRequest(1, 990, 11, requests=1))
    result = measure(mock.url, *levels, leave_out=True)
    assert [level["input"] for level in result["levels"]] == [900]
    assert result["notes"] == [f"skipped prompts of 990 tokens: {why}"]
    assert result["complete"]


def test_streams_that_are_cut_are_counted(engine: Callable[..., Engine]) -> None:
    (level,) = measure(engine(cut_after=3, spare_requests=3).url, FEW)["levels"]
    assert level["failures"] == {"the stream was interrupted": 4}
    assert level["requests"] == {"counted": 2, "all": 2, "failed": 4, "broken_off": 0}
    assert level["ttft_ms"]["count"] == 2


def test_errors_within_a_stream_are_counted(engine: Callable[..., Engine]) -> None:
    (level,) = measure(engine(error_after=2, spare_requests=3).url, FEW)["levels"]
    assert level["failures"] == {"error in the stream: the engine has died": 4}
    assert level["requests"]["failed"] == 4


def test_refusals_under_load_are_counted_and_not_provoked(engine: Callable[..., Engine]) -> None:
    (level,) = measure(engine(ttft=0.01, refuse_every=3).url, NAMED)["levels"]
    ((failure, count),) = level["failures"].items()
    assert failure == "HTTP 503: the queue is full"
    assert level["requests"]["failed"] == count
    # a stream that was refused waits before it asks again
    assert 0 < count <= 4 * 1.5 / 0.2 + 4
    assert level["requests"]["counted"] > 0


def test_an_endpoint_that_refuses_everything_ends_the_benchmark(engine: Callable[..., Engine]) -> None:
    result = measure(engine(refuse_all=True, spare_requests=1).url, FEW, FEW)
    assert (result["complete"], result["why"]) == (False, "no answer at concurrency 2")
    (level,) = result["levels"]
    assert level["failures"] == {"HTTP 503: the queue is full": 6}
    assert (level["ttft_ms"], level["output_tokens_per_second"]["mean"]) == (None, 0.0)
    assert result["notes"] == ["incomplete: no answer at concurrency 2"]


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_a_connection_that_the_endpoint_closes_between_two_answers_is_not_a_failure(
    engine: Callable[..., Engine], seconds: float
) -> None:
    # the first of two streams has nothing left to do while the other one still waits
    mock = engine(itl=0.03, close_after=seconds, ttft=0.02)
    (level,) = measure(mock.url, LevelRequest(2, 32, 3, requests=5))["levels"]
    assert (level["requests"]["counted"], level["failures"]) == (5, {})


def test_a_silent_stream_is_given_up(engine: Callable[..., Engine]) -> None:
    (level,) = measure(engine(hang=True, spare_requests=1).url, LevelRequest(2, 16, 2, requests=2), timeout_s=1)[
        "levels"
    ]
    assert level["failures"] == {"no data for 1 s": 2}


def test_a_cap_of_the_engine_is_shown_as_one(engine: Callable[..., Engine]) -> None:
    levels = (LevelRequest(2, 16, 20, requests=4), LevelRequest(12, 16, 5, seconds=1))
    result = measure(engine(ttft=0.05, itl=0.01, running=3).url, *levels)
    below, above = (level["engine"] for level in result["levels"])
    assert (below["capped"], above["capped"]) == (False, True)
    assert (below["running_most"] <= 2, above["running_most"]) == (True, 3)
    assert 0 < above["queued_most"] <= 9
    assert above["queued"] >= 7
    queued = f"{above['queued']:.0f}"
    assert result["notes"] == [f"12 at once: capped: the engine ran at most 3 requests and queued {queued}"]


def test_an_engine_without_metrics_is_not_said_to_be_capped(engine: Callable[..., Engine]) -> None:
    (level,) = measure(engine(metrics=False, running=1).url, LevelRequest(8, 16, 2, requests=16))["levels"]
    assert level["engine"] is None
