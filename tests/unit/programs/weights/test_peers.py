"""How peers are asked: one that answers badly, slowly or not at all changes nothing for the others."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from rigup.programs import program_file
from rigup.programs.weights import peers
from rigup.programs.weights.hub_pace import HubPace
from rigup.programs.weights.peers import FalsePeerClaim, Offer, Peer, Peers, PeerSharing, PeerView
from tests.hostile import bounded, ends, mangled
from tests.unit.programs.conftest import wait_for

KEY = "k1"
SIZES = {"a": 100}
STATE = {"have": ["a"], "fetching": {}, "hashing": [], "claims": [], "hub_bytes": 0}


def state(name: str) -> bytes:
    """A good answer."""
    return b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps({"host": name, **STATE}).encode()


class Listener:
    """Answers every connection with these bytes and hangs up, or with one byte now and then, or with nothing at all."""

    def __init__(self, answer: bytes | None, drips: bool = False) -> None:
        self.answer, self.drips = answer, drips
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = int(self.socket.getsockname()[1])
        self.ended = threading.Event()
        if answer is not None:
            threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.recv(2**16)
            if not self.drips:
                connection.sendall(self.answer or b"")
            while self.drips and not self.ended.wait(0.02):
                connection.sendall(b" ")

    def end(self) -> None:
        self.ended.set()
        self.socket.close()


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Listener]]:
    """Listeners; a peer has an hour for its answer, and so have all for their first."""
    monkeypatch.setattr(peers, "ASK_TIMEOUT_S", 3600.0)
    monkeypatch.setattr(peers, "FIRST_LOOK_S", 3600.0)
    made: list[Listener] = []

    def listen(answer: bytes | None, drips: bool = False) -> Listener:
        made.append(Listener(answer, drips))
        return made[-1]

    yield listen
    for each in made:
        each.end()


def asked(**listeners: Listener) -> Peers:
    """Peers with these names."""
    others = tuple(Peer(name, ("127.0.0.1",), listener.port) for name, listener in listeners.items())
    return Peers(PeerSharing("me", KEY, Path("."), ("me", *listeners), others, patience_s=0.4), SIZES)


def views(of: Peers) -> dict[str, PeerView]:
    return {view.name: view for view in of.views}


def heard_of_since(before: float, view: PeerView) -> None:
    wait_for(lambda: view.seen > before, f"{view.name} asked once more")


NESTED = b"[" * 100_000


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (state("bad").replace(b'"hub_bytes": 0', b'"hub_bytes": Infinity'), "'inf' is not a number of bytes"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + NESTED, "maximum recursion depth exceeded"),
        (b"HTTP/1.0 200 OK\r\n\r\n{", "Expecting property name"),
        (b"HTTP/1.0 403 Forbidden\r\n\r\n", "answers 403"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the peer is not a web server"),
        (state("somebody"), "another host answers"),
    ],
    ids=["infinite", "nested", "cut", "refused", "no HTTP", "another"],
)
def test_a_bad_answer_is_that_peers_problem_alone(listening: Callable[..., Listener], answer: bytes, said: str) -> None:
    bad = listening(answer)
    found = asked(bad=bad, good=listening(state("good")))
    with ends():
        found.begin()
    bad.answer = state("bad")
    try:
        assert views(found)["good"].have == {"a"}
        assert f"127.0.0.1 port {bad.port}: {said}" in views(found)["bad"].problem
        assert not views(found)["bad"].have
        wait_for(lambda: views(found)["bad"].have == {"a"}, "asked again")
    finally:
        found.end()


@pytest.mark.parametrize("drips", [False, True])
def test_an_answer_that_does_not_end_is_given_up(
    listening: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch, drips: bool
) -> None:
    monkeypatch.setattr(peers, "ASK_TIMEOUT_S", 0.3)
    slow = listening(b"" if drips else None, drips)
    found = asked(slow=slow)
    with ends():
        found.begin()
    found.end()
    assert views(found)["slow"].problem == f"127.0.0.1 port {slow.port}: no answer within 0.3 s"


def test_however_many_are_silent_those_that_answer_are_heard_of(
    listening: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each asks for an hour; the silent ones hang up the first time, so that it is known what they are."""
    monkeypatch.setattr(peers, "ASKED_AT_ONCE", 4)
    monkeypatch.setattr(peers, "SILENT_AT_ONCE", 1)
    silent, good = listening(b""), {f"good{number}": listening(state(f"good{number}")) for number in range(4)}
    found = asked(**{f"silent{number}": silent for number in range(16)}, **good)
    with ends():
        found.begin()
    silent.drips = True
    try:
        for _ in range(5):
            before = time.monotonic()
            for name in good:
                heard_of_since(before, views(found)[name])
    finally:
        found.end()


def test_hosts_that_are_silent_hold_up_nothing_for_long(
    listening: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "FIRST_LOOK_S", 0.2)
    found = asked(silent=listening(None), good=listening(state("good")))
    with ends():
        found.begin()
    try:
        assert not views(found)["silent"].problem, "it is still being asked"
        wait_for(lambda: views(found)["good"].have == {"a"}, "the good one heard of")
    finally:
        found.end()


def test_without_peers_nobody_is_waited_for() -> None:
    assert not asked().begin()


def test_a_file_that_a_peer_says_that_it_lacks_and_then_has_is_trusted_again() -> None:
    view = PeerView(Peer("other", ("127.0.0.1",), 1))
    view.take(STATE, 1.0, SIZES)
    view.lacked("a")
    view.take(STATE, 2.0, SIZES)
    assert not view.is_trusted_with("a"), "it says what it said before"
    view.take({**STATE, "have": []}, 3.0, SIZES)
    view.take(STATE, 4.0, SIZES)
    assert view.is_trusted_with("a") and view.offers("a", 4.0)


def test_a_peer_that_has_a_file_may_claim_to_be_getting_it() -> None:
    view = PeerView(Peer("other", ("127.0.0.1",), 1))
    view.take({**STATE, "claims": ["a"]}, 1.0, SIZES)
    assert view.waited("a", 5.0, 2.0) == 3.0


def test_a_file_that_cannot_be_linked_is_not_offered(tmp_path: Path) -> None:
    offer = Offer(PeerSharing("me", KEY, tmp_path, ("me",), ()))
    (tmp_path / "files/a").mkdir(parents=True)
    for sha256 in ("a", "b"):
        offer.add(sha256, tmp_path / "file")
    offer.publish(fetching={}, hashing=[], claims=[], hub_bytes=0)
    assert json.loads(offer.state.read_text())["have"] == ["b"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"fetching": {"a": 101}}, "says that it has 101 bytes of a file of 100"),
        ({"hub_bytes": 10**15}, "says that it got 1000000000000000 bytes from the hub, of files of 100"),
    ],
    ids=["more than the file", "more than any tries"],
)
def test_a_peer_that_counts_more_than_there_is_is_banned(
    listening: Callable[..., Listener], said: dict[str, object], why: str
) -> None:
    lies = b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps({"host": "liar", **STATE, **said}).encode()
    found = asked(liar=listening(lies))
    found.begin()
    found.end()
    assert views(found)["liar"].banned == why
    assert not views(found)["liar"].have


def test_a_peer_that_says_nothing_for_a_while_does_not_begin_again_to_make_others_wait() -> None:
    view, hub = PeerView(Peer("other", ("127.0.0.1",), 1)), HubPace(rate=100.0)
    for now, hashing in enumerate([["a"], [], ["a"], [], ["a"]] * 5):
        view.take({**STATE, "have": [], "hashing": hashing, "fetching": {"a": now}}, float(now), SIZES)
    assert view.deferrals["a"].since == 0.0
    assert not view.keeps_waiting("a", 100, 1.0, 0.0, 2.0, hub)
    assert view.keeps_waiting("a", 100, 24.0, 0.0, 2.0, hub)


def test_what_a_peer_says_of_files_of_another_checkpoint_is_passed_over() -> None:
    view = PeerView(Peer("other", ("127.0.0.1",), 1))
    view.take({**STATE, "have": ["a", "b", 7], "fetching": {"b": -1}, "claims": ["b"]}, 1.0, SIZES)
    assert (view.have, view.fetching, view.claims) == ({"a"}, {}, set())


def test_a_peer_that_lacks_a_file_again_and_again_is_trusted_with_it_no_more() -> None:
    view = PeerView(Peer("other", ("127.0.0.1",), 1))
    for now in range(3):
        view.take({**STATE, "have": []}, float(now), SIZES)
        view.take(STATE, float(now), SIZES)
        assert view.is_trusted_with("a")
        view.lacked("a")
    view.take({**STATE, "have": []}, 4.0, SIZES)
    view.take(STATE, 4.0, SIZES)
    assert not view.is_trusted_with("a")


BEFORE = {"have": ["a"], "fetching": {"a": 7}, "hashing": ["a"], "claims": [], "hub_bytes": 3}


@given(mangled(BEFORE | {"fetching": {"a": 50, "b": 1}, "claims": ["a", "b"]}))
def test_whatever_a_peer_says_is_its_state_or_changes_nothing(said: Any) -> None:
    view = PeerView(Peer("other", ("127.0.0.1",), 1))
    view.take(BEFORE, 1.0, SIZES)
    was = (view.have, view.fetching, view.hashing, view.claims, view.hub_bytes, view.seen)
    with bounded():
        try:
            view.take(said, 2.0, SIZES)
        except (ValueError, KeyError, TypeError, FalsePeerClaim):
            assert (view.have, view.fetching, view.hashing, view.claims, view.hub_bytes, view.seen) == was
        else:
            assert {*view.have, *view.hashing, *view.claims, *view.fetching} <= SIZES.keys()
            assert all(type(count) is int and 0 <= count <= SIZES[sha256] for sha256, count in view.fetching.items())
            assert type(view.hub_bytes) is int and 0 <= view.hub_bytes < 10**15


def test_the_peers_that_answer_now_are_named(listening: Callable[..., Listener], tmp_path: Path) -> None:
    well, lost, other = listening(state("well")), listening(None), listening(state("somebody"))
    loaded = listening(state("loaded").replace(b'"hub_bytes": 0', b'"hub_bytes": 100'))
    lost.end()
    listeners = {"well": well, "lost": lost, "other": other, "loaded": loaded}
    others = [{"name": name, "addresses": ["127.0.0.1"], "port": each.port} for name, each in listeners.items()]
    sharing = {"name": "me", "key": KEY, "folder": str(tmp_path), "fetchers": ["me", *listeners], "peers": others}
    files = [{"path": "model", "size": size, "sha256": sha256} for sha256, size in SIZES.items()]
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"folder": str(tmp_path), "files": files, "sharing": sharing}))

    done = subprocess.run([sys.executable, program_file("peers.py"), job], capture_output=True, text=True)

    assert json.loads(done.stdout) == ["well", "loaded"], done.stderr
