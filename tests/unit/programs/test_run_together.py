"""What keeps the engines of a service's hosts together: here three processes on loopback, with shells as engines."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import rigup.programs
from rigup.programs import run_together
from tests.hostile import SAFETY_S, ends

PROGRAMS = Path(rigup.programs.__file__).parent
# the same program with other limits: argv[1] are they, argv[2] is its folder
PROGRAM = "import json, sys; limits = json.loads(sys.argv.pop(1)); sys.path.insert(0, sys.argv.pop(1)); "
PROGRAM += "import run_together as program; vars(program).update(limits); program.main()"
ENGINE = 'echo "$$" >> "$0"; exec sleep 3600'
LESS_SILENCE = 4.0


def wait_for(condition: Callable[[], object], seconds: float = SAFETY_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Hosts:
    """The hosts of one service. Engines leave their process ids in a file, one for each start.

    A host is not lost because this machine is busy, unless a test takes the patience away.
    """

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.folder, self.count = folder, count
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.limits = {"BEAT": 0.1, "END_SECONDS": 1.0, "SILENCE": SAFETY_S, "LISTEN_SECONDS": SAFETY_S}

    def start(self, rank: int, engine: str = ENGINE, after: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        addresses = ",".join(f"127.0.0.{rank + 1}" for rank in range(self.count))
        words = (str(rank), addresses, str(self.port), *after, "--")
        with (self.folder / f"log{rank}").open("ab") as log:
            self.running[rank] = subprocess.Popen(
                (
                    sys.executable,
                    "-c",
                    PROGRAM,
                    json.dumps(self.limits),
                    str(PROGRAMS),
                    *words,
                    "sh",
                    "-c",
                    engine,
                    str(self.folder / f"{rank}"),
                ),
                stderr=log,
                start_new_session=True,
            )
        return self.running[rank]

    def kill(self, rank: int) -> None:
        self.running[rank].kill()
        self.running[rank].wait()

    def engines(self, rank: int) -> list[int]:
        path = self.folder / f"{rank}"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def all_started(self, times: int) -> bool:
        return all(len(self.engines(rank)) == times for rank in range(self.count))

    def runs(self, rank: int) -> bool:
        """Whether the engine that was started last there still runs."""
        try:
            os.kill(self.engines(rank)[-1], 0)
        except ProcessLookupError:
            return False
        return True

    def said(self, rank: int) -> list[str]:
        return [line.removeprefix("run_together: ") for line in (self.folder / f"log{rank}").read_text().splitlines()]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path)
    yield hosts
    for rank, process in hosts.running.items():
        process.kill()
        process.wait()
        for engine in hosts.engines(rank):
            with suppress(ProcessLookupError):
                os.kill(engine, signal.SIGKILL)


def test_no_engine_starts_before_the_last_host_is_there(hosts: Hosts) -> None:
    hosts.start(2)
    hosts.start(0)
    wait_for(lambda: "host 2 joined" in hosts.said(0))
    assert hosts.said(0) == ["waiting for host 1, 2", "host 2 joined"]
    assert hosts.engines(0) == hosts.engines(2) == []
    hosts.start(1)
    wait_for(lambda: hosts.all_started(1))
    assert hosts.said(1)[-1] == "all hosts joined; starting the engine"


def test_a_host_that_is_killed_ends_the_engines_of_all_and_its_return_starts_them_again(hosts: Hosts) -> None:
    for rank in range(3):
        hosts.start(rank)
    wait_for(lambda: hosts.all_started(1))
    hosts.kill(1)
    wait_for(lambda: not hosts.runs(0) and not hosts.runs(2))
    assert hosts.running[0].poll() is None and hosts.running[2].poll() is None
    os.kill(hosts.engines(1)[0], signal.SIGKILL)  # as systemd does with what is left of a unit
    hosts.start(1)
    wait_for(lambda: hosts.all_started(2))
    assert all(hosts.runs(rank) for rank in range(3))
    assert "host 1 is lost" in hosts.said(0)


def test_a_head_that_is_killed_has_the_others_wait_for_it(hosts: Hosts) -> None:
    for rank in range(3):
        hosts.start(rank)
    wait_for(lambda: hosts.all_started(1))
    hosts.kill(0)
    wait_for(lambda: not hosts.runs(1) and not hosts.runs(2))
    assert hosts.said(1)[-1] == f"waiting for host 0 at 127.0.0.1, port {hosts.port}"
    hosts.start(0)
    wait_for(lambda: hosts.all_started(2))


def test_a_host_that_says_nothing_any_more_is_lost(hosts: Hosts) -> None:
    hosts.limits["SILENCE"] = LESS_SILENCE
    for rank in range(3):
        hosts.start(rank)
    wait_for(lambda: hosts.all_started(1))
    hosts.running[2].send_signal(signal.SIGSTOP)  # its connection stands, as after a power cut
    wait_for(lambda: not hosts.runs(0) and not hosts.runs(1))
    assert "host 2 is lost" in hosts.said(0)
    hosts.running[2].send_signal(signal.SIGCONT)
    wait_for(lambda: hosts.all_started(2))


def test_an_engine_that_ends_by_itself_even_well_ends_the_program_with_an_error(hosts: Hosts) -> None:
    hosts.start(0)
    hosts.start(1)
    others_run = '[ -s "${0%2}0" ] && [ -s "${0%2}1" ]'
    ending = hosts.start(2, f'echo "$$" >> "$0"; until {others_run}; do sleep 0.02; done; exit 0')
    assert ending.wait(SAFETY_S) == 1
    assert hosts.said(2)[-1] == "the engine exited with 0"
    wait_for(lambda: len(hosts.engines(0)) == 1 and not hosts.runs(0) and not hosts.runs(1))


def test_the_heads_engine_starts_once_those_of_the_others_listen(hosts: Hosts) -> None:
    hosts.count = 2
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        hosts.start(0, after=(f"127.0.0.1:{server.getsockname()[1]}",))
        hosts.start(1)
        wait_for(lambda: len(hosts.engines(1)) == 1)
        time.sleep(0.3)  # several rounds in which it could have been started wrongly
        assert hosts.engines(0) == []
        server.listen()
        wait_for(lambda: len(hosts.engines(0)) == 1)


def test_an_engine_that_hangs_before_it_listens_is_started_again(hosts: Hosts) -> None:
    hosts.limits["LISTEN_SECONDS"] = 1.5
    hosts.count = 2
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        hosts.start(0, after=(f"127.0.0.1:{server.getsockname()[1]}",))
        hosts.start(1)
        wait_for(lambda: len(hosts.engines(1)) == 2)
        assert hosts.engines(0) == []
        assert "not every required port is listening; restarting all hosts" in hosts.said(0)


def test_systemd_stops_engine_and_program_without_an_error(hosts: Hosts) -> None:
    hosts.count = 2
    for rank in range(2):
        hosts.start(rank)
    wait_for(lambda: hosts.all_started(1))
    hosts.running[0].terminate()
    assert hosts.running[0].wait(SAFETY_S) == 0
    wait_for(lambda: not hosts.runs(0))


def test_a_stranger_who_connects_changes_nothing(hosts: Hosts) -> None:
    hosts.count = 2
    for rank in range(2):
        hosts.start(rank)
    wait_for(lambda: hosts.all_started(1))
    for words in (b"", b"GET / HTTP/1.1\r\n\r\n", b"rigup 7\n", b"rigup 0\n", b"rigup 1\n"):  # 1 is at another address
        with socket.create_connection(("127.0.0.1", hosts.port)) as stranger:
            stranger.sendall(words)
            if words:
                assert stranger.recv(1) == b""  # sent away
    assert hosts.all_started(1) and hosts.runs(0) and hosts.runs(1)


def test_strangers_who_flood_drip_or_crowd_keep_nobody_away(hosts: Hosts) -> None:
    hosts.limits["SILENCE"] = LESS_SILENCE
    hosts.start(0)
    wait_for(lambda: hosts.said(0))
    head = ("127.0.0.1", hosts.port)
    with ExitStack() as strangers:
        for _ in range(200):
            strangers.enter_context(socket.create_connection(head))
        numbers = strangers.enter_context(socket.create_connection(head))
        numbers.sendall(b"rigup " + b"9" * 3000 + b"\n")
        drip = strangers.enter_context(socket.create_connection(head))
        flood = strangers.enter_context(socket.create_connection(head))
        with suppress(OSError):
            flood.settimeout(1)
            for _ in range(1000):
                flood.sendall(bytes(1 << 16))
        with ends(), pytest.raises(OSError):
            while True:
                drip.sendall(b"x")
                time.sleep(0.1)
        hosts.start(1)
        hosts.start(2)
        wait_for(lambda: hosts.all_started(1))
    assert hosts.running[0].poll() is None
    status = Path(f"/proc/{hosts.running[0].pid}/status").read_text()
    assert int(status.partition("VmHWM:")[2].split()[0]) < 64 << 10


def drain_of(listener: socket.socket, seconds: float) -> str:
    return f"drain={listener.getsockname()[1]}:{seconds}"


def test_a_host_that_stops_keeps_its_engine_until_no_request_is_in_flight(hosts: Hosts) -> None:
    with socket.create_server(("127.0.0.1", 0)) as api, socket.create_connection(api.getsockname()) as client:
        for rank in range(3):
            hosts.start(rank, after=(drain_of(api, 3600),))
        wait_for(lambda: hosts.all_started(1))
        served, _ = api.accept()
        hosts.running[1].terminate()
        wait_for(lambda: "host 1 is about to stop; waiting for the requests in flight" in hosts.said(0))
        time.sleep(0.5)
        assert all(hosts.runs(rank) for rank in range(3))
        served.close()
        client.close()
        assert hosts.running[1].wait(SAFETY_S) == 0
    wait_for(lambda: not any(hosts.runs(rank) for rank in range(3)))
    assert hosts.running[0].poll() is None and hosts.running[2].poll() is None
    hosts.start(1, after=("drain=1:3600",))
    wait_for(lambda: hosts.all_started(2))


def test_a_host_that_stops_waits_no_longer_than_it_may(hosts: Hosts) -> None:
    with socket.create_server(("127.0.0.1", 0)) as api, socket.create_connection(api.getsockname()):
        for rank in range(3):
            hosts.start(rank, after=(drain_of(api, 0.5),))
        wait_for(lambda: hosts.all_started(1))
        hosts.running[2].terminate()
        assert hosts.running[2].wait(SAFETY_S) == 0
        wait_for(lambda: not any(hosts.runs(rank) for rank in range(3)))


def test_a_stop_while_an_engine_starts_ends_that_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, known = subprocess.Popen, list[bool]()

    def beginning(*words: Any, **more: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return begin(*words, **more)

    engine = run_together.EngineProcess(["sleep", "3600"])
    before = signal.signal(signal.SIGTERM, lambda number, frame: known.append(engine.process is not None))
    try:
        monkeypatch.setattr(subprocess, "Popen", beginning)
        engine.start()
        assert known == [True]
    finally:
        signal.signal(signal.SIGTERM, before)
        engine.end()


def test_a_host_that_waits_for_the_others_stops_at_once(hosts: Hosts) -> None:
    process = hosts.start(1, after=("drain=1:3600",))
    wait_for(lambda: hosts.said(1))
    process.terminate()
    assert process.wait(SAFETY_S) == 0
