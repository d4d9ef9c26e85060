"""Parts of files on a hub: exactly the bytes that were asked for, or one error in bounded time and memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.checkpoints.byte_source import hub_file
from rigup.checkpoints.gguf_header import read_gguf_header
from rigup.checkpoints.safetensors_header import read_safetensors_header
from rigup.checkpoints.tensor import Tensor
from rigup.errors import RigupError, Unreachable
from rigup.lab.hub.server_process import StandInHub
from rigup.lab.hub.sparse_files import write_gguf, write_safetensors
from rigup.sources import http_retry
from rigup.sources.hub import Hub, HubFile
from tests.hostile import bounded
from tests.unit.sources.hostile_server import Script, head, hostile_server

COMMIT = "c" * 40
FILE = HubFile("model.safetensors", 10**12, COMMIT, None)
TENSORS = (Tensor("a", "F32", (1000, 1000, 1000), 4_000_000_000), Tensor("b", "F32", (8,), 32))


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[StandInHub]:
    write_safetensors(tmp_path / "root/org/model/model.safetensors", TENSORS[1:])
    words = [f"word {number}" for number in range(100_000)]
    write_gguf(tmp_path / "root/org/model/model.gguf", {"tokenizer.ggml.tokens": words, "z": 7}, TENSORS[1:])
    hub = StandInHub.start(tmp_path / "root", tmp_path / "state", lfs_minimum=1)
    yield hub
    hub.stop()


def test_headers_are_read_by_ranges_over_the_redirect(stand_in: StandInHub) -> None:
    hub = Hub(stand_in.url, "hf_secret")
    commit = hub.commit("org/model", "main")
    files = hub.files("org/model", commit)
    assert read_safetensors_header(hub_file(hub, "org/model", commit, files["model.safetensors"])) == TENSORS[1:]
    found = read_gguf_header(hub_file(hub, "org/model", commit, files["model.gguf"]))
    assert found.tensors == TENSORS[1:] and found.metadata == {"z": 7}
    reads = [entry for entry in stand_in.log() if entry["status"] == 206]
    assert reads and all(entry["range"] for entry in reads)
    assert not any(entry["authorization"] for entry in reads)


def test_a_hub_without_ranges_is_one_message(stand_in: StandInHub) -> None:
    hub = Hub(stand_in.url, pause=lambda seconds: None)
    commit = hub.commit("org/model", "main")
    file = hub.files("org/model", commit)["model.gguf"]
    stand_in.faults(ignore_range=True)
    with pytest.raises(Unreachable) as error:
        hub.part("org/model", commit, file, 4, 10)
    assert error.value.message == f"org/model: the hub at {hub.name} sends whole files where a part is requested"


def endless(request: str) -> Iterator[bytes]:
    yield head("Content-Range: bytes 0-131071/1000000000000", status="206 Partial")
    yield from itertools.repeat(bytes(100_000))


def another_part(request: str) -> Iterator[bytes]:
    yield head("Content-Range: bytes 1-4/1000000000000", "Content-Length: 4", status="206 Partial")
    yield b"abcd"


def short_part(request: str) -> Iterator[bytes]:
    yield head("Content-Range: bytes 0-131071/1000000000000", "Content-Length: 4", status="206 Partial")
    yield b"abcd"


def no_range(request: str) -> Iterator[bytes]:
    yield head("Content-Length: 131072", status="206 Partial")
    yield bytes(131_072)


def dripping(request: str) -> Iterator[bytes | float]:
    yield head("Content-Range: bytes 0-131071/1000000000000", "Content-Length: 131072", status="206 Partial")
    while True:
        yield b" "
        yield 0.05


def hangs_up(request: str) -> Iterator[bytes]:
    yield head("Content-Range: bytes 0-131071/1000000000000", "Content-Length: 131072", status="206 Partial")
    yield bytes(100)


@pytest.mark.parametrize("script", [endless, another_part, short_part, no_range, dripping, hangs_up])
def test_a_hostile_server_of_parts_ends_in_one_error(monkeypatch: pytest.MonkeyPatch, script: Script) -> None:
    monkeypatch.setattr(http_retry, "EXCHANGE_S", 2.0)
    with hostile_server(script) as url, bounded(20, 100), pytest.raises(RigupError) as error:
        source = hub_file(Hub(url, "hf_secret", pause=lambda seconds: None), "org/model", COMMIT, FILE)
        read_safetensors_header(source)
    assert error.value.message.startswith("org/model: ") and "hf_secret" not in error.value.message
    assert error.value.hint
