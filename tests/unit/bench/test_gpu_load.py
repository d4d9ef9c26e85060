"""What loads a host's GPUs: its services, or a build with torch, or nothing, which is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.bench import gpu_load
from rigup.errors import HostFailed
from rigup.facts.probe import Probe, ProbedGpu, UnitState
from rigup.operations.primitives.remote import Output

HOST: Any = SimpleNamespace(name="gpu1")
GPU = {"gpu": 0, "name": "NVIDIA GeForce RTX 3090", "power_w": 340.0, "power_most_w": 350.0, "memory_most_mib": 100}
GPU |= {"temperature_most_c": 70, "clock_mhz": 1700.0, "held_back": {"power cap": 1.0}}
COMMAND = ["bin/llama-server", "--alias", "m", "--host", "127.0.0.1", "--port", "8000"]
HEAD = {"command": COMMAND}
SERVING = Probe(
    gpus=(ProbedGpu("NVIDIA GeForce RTX 3090"),), releases={"chat": HEAD}, units={"chat": UnitState(active="active")}
)
IDLE = replace(SERVING, units={"chat": UnitState(active="inactive")}, builds=("llama.cpp-b1-a", "vllm-0.33.0-b"))


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, ...]]]:
    """What a host prints, by a word of the command; returns the commands that ran."""

    def make(**printed: str) -> list[tuple[str, ...]]:
        ran: list[tuple[str, ...]] = []

        def run(host: object, *words: str, **options: Any) -> Output:
            ran.append(words)
            found = [text for word, text in printed.items() if any(word in one for one in words)]
            return Output(bool(found), found[0] if found else "", "")

        monkeypatch.setattr(gpu_load.remote, "run", run)
        monkeypatch.setattr(gpu_load.remote, "check_output", lambda *words, **options: run(*words, **options).stdout)
        return ran

    return make


def level(**values: Any) -> bytes:
    counts = {"counted": 9, "all": 9, "failed": 0, "broken_off": 0}
    rate = {"mean": 1, "parts": []}
    names = ("output_tokens_per_second", "prompt_tokens_per_second", "requests_per_second")
    nothing = dict.fromkeys(("ttft_ms", "tpot_ms", "itl_ms", "request_ms", "prompt_tokens", "output_tokens", "engine"))
    found = {"concurrency": 32, "input": 256, "output": 256, "complete": True, "requests": counts, "failures": {}}
    found |= {"window_s": 60.5, **dict.fromkeys(names, rate), **nothing, "tokens_per_event": 1, "each": []}
    found |= {"gpus": [GPU], "client": {"busy": 0.1, "late_ms": None}}
    return json.dumps({"level": found | values}).encode()


def test_services_are_asked_and_the_cards_watched(
    monkeypatch: pytest.MonkeyPatch, there: Callable[..., list[tuple[str, ...]]]
) -> None:
    requests: list[dict[str, Any]] = []

    def follow(host: object, request: dict[str, Any], collected: Any) -> str:
        requests.append(request)
        collected.take(level())
        return ""

    there(**{"api-key": ""})
    monkeypatch.setattr(gpu_load, "follow", follow)
    second = {"command": [*COMMAND[:-1], "8001"]}
    two = replace(
        SERVING, releases={"chat": HEAD, "coder": second}, units=dict.fromkeys(("chat", "coder"), UnitState("active"))
    )
    load = gpu_load._loaded(HOST, two, 60)
    assert (load.by, load.seconds, load.gpus[0].held_back) == ("chat, coder", 60.5, {"power cap": 1.0})
    assert {request["url"] for request in requests} == {"http://127.0.0.1:8000", "http://127.0.0.1:8001"}
    assert {request["levels"][0]["seconds"] for request in requests} == {60}
    assert requests[0]["gpus"] and requests[0]["unit"] == "rigup-chat.service"
    assert requests[0]["key_file"] == "/etc/rigup/services/chat/api-key"


def test_a_service_that_answers_nothing_is_not_load(
    monkeypatch: pytest.MonkeyPatch, there: Callable[..., list[tuple[str, ...]]]
) -> None:
    none = {"counted": 0, "all": 0, "failed": 32, "broken_off": 0}
    there()
    monkeypatch.setattr(
        gpu_load, "follow", lambda host, request, got: got.take(level(requests=none, failures={"status 500": 32})) or ""
    )
    with pytest.raises(HostFailed, match="gpu1: chat: it answered no request: status 500"):
        gpu_load._loaded(HOST, SERVING, 60)


def test_a_build_with_torch_multiplies_as_the_worker(there: Callable[..., list[tuple[str, ...]]]) -> None:
    build = "/opt/rigup/builds/vllm-0.33.0-b"
    ran = there(**{"for build": f"{build}\n", "bin/python": json.dumps({"seconds": 60.0, "gpus": [GPU]})})
    load = gpu_load._loaded(HOST, IDLE, 60)
    assert (load.by, load.gpus[0].power_w) == ("products of matrices, by vllm-0.33.0-b", 340)
    assert ran[-1][0] == "setpriv" and f"{build}/bin/python" in ran[-1]


@pytest.mark.parametrize(
    ("probe", "printed", "message"),
    [
        (replace(IDLE, gpus=()), {}, "it has no GPU to load"),
        (
            IDLE,
            {"for build": ""},
            "no service runs here that could load the GPUs, and no build with torch is installed",
        ),
        (
            IDLE,
            {"for build": "/opt/rigup/builds/vllm-0.33.0-b", "bin/python": '{"error": "CUDA out of memory"}'},
            "multiplying with vllm-0.33.0-b: CUDA out of memory",
        ),
        (
            replace(SERVING, releases={"chat": HEAD | {"set": {"nodes": [{"host": "gpu0"}, {"host": "gpu1"}]}}}),
            {},
            "chat runs across hosts, and only its head takes requests",
        ),
    ],
)
def test_what_cannot_be_loaded_is_refused(
    there: Callable[..., list[tuple[str, ...]]], probe: Probe, printed: dict[str, str], message: str
) -> None:
    there(**printed)
    with pytest.raises(HostFailed, match=message) as refused:
        gpu_load._loaded(HOST, probe, 60)
    assert refused.value.hint
