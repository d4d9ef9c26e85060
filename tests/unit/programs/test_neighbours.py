"""How neighbours are asked: one that answers badly, slowly or not at all changes nothing for the others."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rigup.programs import neighbours
from rigup.programs.neighbours import Neighbour, Neighbours, Offer, Sharing, View
from tests.unit.programs.conftest import wait_for

KEY = "k1"
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
    monkeypatch.setattr(neighbours, "ASK_TIMEOUT_S", 0.3)
    made: list[Listener] = []

    def listen(answer: bytes | None, drips: bool = False) -> Listener:
        made.append(Listener(answer, drips))
        return made[-1]

    yield listen
    for each in made:
        each.end()


def asked(**listeners: Listener) -> Neighbours:
    """Neighbours with these names."""
    others = tuple(Neighbour(name, ("127.0.0.1",), listener.port) for name, listener in listeners.items())
    return Neighbours(Sharing("me", KEY, Path("."), ("me", *listeners), others, patience_s=0.4))


def views(of: Neighbours) -> dict[str, View]:
    return {view.name: view for view in of.views}


def heard_of_since(before: float, view: View) -> None:
    wait_for(lambda: view.seen > before, f"{view.name} asked once more")


NESTED = b"[" * 100_000


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (state("bad").replace(b'"hub_bytes": 0', b'"hub_bytes": Infinity'), "cannot convert float infinity to integer"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + NESTED, "maximum recursion depth exceeded"),
        (b"HTTP/1.0 200 OK\r\n\r\n{", "Expecting property name"),
        (b"HTTP/1.0 403 Forbidden\r\n\r\n", "answers 403"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "what answers is no web server"),
        (state("somebody"), "another host answers"),
    ],
    ids=["infinite", "nested", "cut", "refused", "no HTTP", "another"],
)
def test_a_bad_answer_is_that_neighbours_problem_alone(
    listening: Callable[..., Listener], answer: bytes, said: str
) -> None:
    bad = listening(answer)
    found = asked(bad=bad, good=listening(state("good")))
    began = time.monotonic()
    found.begin()
    took = time.monotonic() - began
    bad.answer = state("bad")
    try:
        assert took < 1
        assert views(found)["good"].have == {"a"}
        assert f"127.0.0.1 port {bad.port}: {said}" in views(found)["bad"].problem
        assert not views(found)["bad"].have
        wait_for(lambda: views(found)["bad"].have == {"a"}, "asked again")
    finally:
        found.end()


@pytest.mark.parametrize("drips", [False, True])
def test_an_answer_that_does_not_end_is_given_up(listening: Callable[..., Listener], drips: bool) -> None:
    slow = listening(b"" if drips else None, drips)
    found = asked(slow=slow)
    began = time.monotonic()
    found.begin()
    took = time.monotonic() - began
    found.end()
    assert took < 1
    assert views(found)["slow"].problem == f"127.0.0.1 port {slow.port}: no answer within 0.3 s"


def test_however_many_are_silent_those_that_answer_are_heard_of_in_time(
    listening: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "ASKED_AT_ONCE", 4)
    monkeypatch.setattr(neighbours, "SILENT_AT_ONCE", 1)
    silent, good = listening(None), {f"good{number}": listening(state(f"good{number}")) for number in range(4)}
    found = asked(**{f"silent{number}": silent for number in range(16)}, **good)
    found.begin()
    rounds = []
    try:
        for _ in range(5):
            before = time.monotonic()
            for name in good:
                heard_of_since(before, views(found)[name])
            rounds.append(time.monotonic() - before)
    finally:
        found.end()
    assert min(rounds) < 0.5, "all silent ones in their turn, each for ASK_TIMEOUT_S, would take a second"


def test_hosts_that_are_silent_hold_up_nothing_for_long(
    listening: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "ASK_TIMEOUT_S", 60.0)
    monkeypatch.setattr(neighbours, "FIRST_LOOK_S", 0.2)
    found = asked(silent=listening(None), good=listening(state("good")))
    began = time.monotonic()
    found.begin()
    took = time.monotonic() - began
    found.end()
    assert took < 1
    assert views(found)["good"].have == {"a"}


def test_without_neighbours_nobody_is_waited_for() -> None:
    began = time.monotonic()
    asked().begin()
    assert time.monotonic() - began < 1


def test_a_file_that_a_neighbour_says_that_it_lacks_and_then_has_is_trusted_again() -> None:
    view = View(Neighbour("other", ("127.0.0.1",), 1))
    view.take(STATE, 1.0)
    view.lacked("a")
    view.take(STATE, 2.0)
    assert not view.is_trusted_with("a"), "it says what it said before"
    view.take({**STATE, "have": []}, 3.0)
    view.take(STATE, 4.0)
    assert view.is_trusted_with("a") and view.offers("a", 4.0)


def test_a_file_that_cannot_be_linked_is_not_offered(tmp_path: Path) -> None:
    offer = Offer(Sharing("me", KEY, tmp_path, ("me",), ()))
    (tmp_path / "files/a").mkdir(parents=True)
    for sha256 in ("a", "b"):
        offer.add(sha256, tmp_path / "file")
    offer.tell(fetching={}, hashing=[], claims=[], hub_bytes=0)
    assert json.loads(offer.state.read_text())["have"] == ["b"]
