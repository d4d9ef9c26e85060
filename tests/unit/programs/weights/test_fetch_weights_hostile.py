"""Hubs and peers that mean harm: no file outgrows its size, nobody makes a download wait for long, each is named."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.programs.conftest import Weights
from tests.unit.programs.hostile_server import HostileServer
from tests.unit.programs.weights.test_swarm import KEY, Host

MODEL = "model-00001.gguf"


@pytest.fixture
def serving() -> Iterator[Callable[..., HostileServer]]:
    made: list[HostileServer] = []

    def serve(*arguments: Any) -> HostileServer:
        made.append(HostileServer(*arguments))
        return made[-1]

    yield serve
    for each in made:
        each.end()


@pytest.fixture
def newcomer(weights: Weights, tmp_path: Path) -> Iterator[Host]:
    host = Host("h1", weights, tmp_path / "h1")
    yield host
    host.server.end()


def hostile_job(newcomer: Host, port: int, owned_by_peer: bool = False, **changes: Any) -> Path:
    """The newcomer's job for the model in a swarm with a hostile peer h2, whose turn at the hub comes first."""
    sharing = {
        "name": "h1",
        "key": KEY,
        "folder": str(newcomer.sharing),
        "fetchers": ["h2", "h1"] if owned_by_peer else ["h1"],
        "peers": [{"name": "h2", "addresses": ["127.0.0.1"], "port": port}],
        "patience_s": 1.0,
    }
    return newcomer.weights.job(MODEL, sharing=sharing, **changes)


def state(**said: Any) -> bytes:
    nothing: dict[str, Any] = {"have": [], "fetching": {}, "hashing": [], "claims": [], "hub_bytes": 0}
    return json.dumps({"host": "h2", **nothing, **said}).encode()


def sha256(weights: Weights) -> str:
    return hashlib.sha256(weights.contents[MODEL]).hexdigest()


def largest_below(folder: Path) -> int:
    return max((path.stat().st_size for path in folder.rglob("*") if path.is_file()), default=0)


def test_a_hub_that_sends_without_end_and_without_a_length_fills_no_disk(
    weights: Weights, serving: Callable[..., HostileServer]
) -> None:
    hub = serving(weights.contents[MODEL][:1000])

    done = weights.run(weights.job(MODEL, hub=f"http://127.0.0.1:{hub.port}", attempts=2))

    assert done.returncode == 1
    assert "sends more than the file" in done.stderr
    assert largest_below(weights.home / "weights") <= len(weights.contents[MODEL])
    assert hub.sent < 50_000_000


def test_small_files_are_bounded_by_their_own_size_and_not_by_the_largest(
    weights: Weights, serving: Callable[..., HostileServer]
) -> None:
    hub = serving(b"")

    weights.run(weights.job("config.json", MODEL, hub=f"http://127.0.0.1:{hub.port}", attempts=1))

    small = weights.part("config.json")
    assert not small.exists() or small.stat().st_size <= len(weights.contents["config.json"])


def test_a_peer_that_sends_without_end_is_banned_and_the_hub_asked(
    newcomer: Host, serving: Callable[..., HostileServer]
) -> None:
    peer = serving()
    peer.states[f"/state/{KEY}.json"] = state(have=[sha256(newcomer.weights)])

    done = newcomer.weights.run(hostile_job(newcomer, peer.port))

    assert done.returncode == 0, done.stderr
    assert newcomer.weights.fetched(MODEL)
    assert f"h2 is banned: it sent more than {MODEL} has" in done.stderr
    assert peer.sent < 50_000_000


def test_a_peer_just_above_curls_limit_is_left_for_the_hub_and_named(
    newcomer: Host, serving: Callable[..., HostileServer]
) -> None:
    peer = serving(b"", 72_000)
    peer.states[f"/state/{KEY}.json"] = state(have=[sha256(newcomer.weights)])

    done = newcomer.weights.run(hostile_job(newcomer, peer.port))

    assert done.returncode == 0, done.stderr
    assert newcomer.weights.fetched(MODEL)
    assert "switching from h2 to the hub: it gives " in done.stderr
    assert "h2" in newcomer.state["slow"]


@pytest.mark.parametrize("lie", ["grows", "hashes", "claims", "counts all", "counts more"])
def test_a_peer_that_says_that_it_gets_a_file_makes_nobody_wait_for_long(
    newcomer: Host, serving: Callable[..., HostileServer], lie: str
) -> None:
    """It says so for ever; the hub gives the file in a moment."""
    peer, file, size = serving(), sha256(newcomer.weights), len(newcomer.weights.contents[MODEL])
    count = 0

    class Growing(dict[str, bytes]):
        def __contains__(self, path: object) -> bool:
            return str(path).startswith("/state/")

        def __getitem__(self, path: str) -> bytes:
            nonlocal count
            count += 1
            return {
                "grows": state(fetching={file: count}, hub_bytes=count),
                "hashes": state(hashing=[file] if count % 2 else []),
                "claims": state(claims=[file], hub_bytes=count),
                "counts all": state(fetching={file: size}, hub_bytes=size),
                "counts more": state(fetching={file: size + count}),
            }[lie]

    peer.states = Growing()

    done = newcomer.weights.run(hostile_job(newcomer, peer.port, owned_by_peer=True))

    assert done.returncode == 0, done.stderr
    assert newcomer.weights.fetched(MODEL)
    if lie == "counts more":
        assert re.search(rf"h2 is banned: .* {size + 1} bytes .* {size}\b", done.stderr)
        assert "h2" in newcomer.state["banned"]
    # silence alone gives "counts all" away; between two claims of "hashes" the file may come from the hub unasked
    elif lie not in ("counts all", "hashes"):
        assert "no longer waiting for h2: it says for " in done.stderr
        assert "h2" in newcomer.state["slow"]
