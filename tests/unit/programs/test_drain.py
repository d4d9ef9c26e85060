"""A stop waits for connections with a request in flight, for as long as it may, and keeps new requests away."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.programs import drain

UNIT = "rigup-my-chat.service"
CLOSING = """\
add table inet drain_rigup_my_chat
delete table inet drain_rigup_my_chat
add table inet drain_rigup_my_chat
add chain inet drain_rigup_my_chat input { type filter hook input priority filter - 10; policy accept; }
add rule inet drain_rigup_my_chat input tcp dport 8000 tcp flags & (syn | ack) == syn reject with tcp reset
add rule inet drain_rigup_my_chat input tcp dport 8000 tcp doff 5 @th,160,32 { 0x47455420, 0x504f5354 } \
reject with tcp reset
add rule inet drain_rigup_my_chat input tcp dport 8000 tcp doff 8 @th,256,32 { 0x47455420, 0x504f5354 } \
reject with tcp reset"""


class Engine:
    """Stands for an engine: a process that only its unit would end, and a port with one client, which has asked."""

    def __init__(self, family: socket.AddressFamily) -> None:
        self.process = subprocess.Popen((sys.executable, "-c", "import time; time.sleep(600)"))
        address = "::1" if family == socket.AF_INET6 else "127.0.0.1"
        self.listener = socket.create_server((address, 0), family=family)
        self.port = self.listener.getsockname()[1]
        self.client = socket.create_connection((address, self.port))
        self.served = self.listener.accept()[0]
        self.client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        self.served.recv(1)

    def hang_up(self) -> None:
        """Ends the answer, as an engine does, and then the connection of the client."""
        self.served.close()
        self.client.close()

    def stop(self, seconds: float) -> threading.Thread:
        """What systemd runs before its signal."""
        thread = threading.Thread(target=drain.main, args=([UNIT, str(self.port), str(seconds)],))
        thread.start()
        return thread


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine whose port nobody can close: the machine of the tests keeps its firewall."""
    monkeypatch.setattr(drain, "NFT", "/nonexistent/nft")
    made = Engine(request.param)
    monkeypatch.setenv("MAINPID", str(made.process.pid))
    yield made
    made.hang_up()
    made.listener.close()
    made.process.kill()
    made.process.wait()


def test_it_ends_with_the_last_connection(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    stopping = engine.stop(60)
    stopping.join(0.5)
    assert stopping.is_alive()
    engine.hang_up()
    stopping.join(60)
    assert not stopping.is_alive()
    assert engine.process.poll() is None
    assert "drain: connections left: 1, for 60 s at most" in capsys.readouterr().out


def test_an_idle_engine_is_told_at_once(engine: Engine) -> None:
    engine.hang_up()
    drain.main([UNIT, str(engine.port), "60"])
    assert engine.process.poll() is None


def test_a_client_that_has_sent_nothing_is_not_waited_for(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_connection(engine.listener.getsockname()[:2]) as silent, engine.listener.accept()[0]:
        assert (drain.with_requests(engine.port), drain.connections(engine.port)) == (1, 2)
        engine.hang_up()
        drain.main([UNIT, str(engine.port), "60"])
        assert engine.process.poll() is None
        silent.sendall(b"GET")
        assert drain.with_requests(engine.port) == 1
    monkeypatch.setattr(drain, "SS", "/nonexistent/ss")
    with socket.create_connection(engine.listener.getsockname()[:2]), engine.listener.accept()[0]:
        assert drain.with_requests(engine.port) == 1


def test_after_its_time_the_engine_is_killed(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    drain.main([UNIT, str(engine.port), "0.2"])
    assert engine.process.wait(60) == -9
    assert re.search(r"drain: connections cut after \d+ s: 1", capsys.readouterr().out)


def test_nothing_is_waited_for_after_the_engine(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "wait", lambda *_: pytest.fail("it waits"))
    engine.process.kill()
    engine.process.wait()
    drain.main([UNIT, str(engine.port), "60"])
    monkeypatch.delenv("MAINPID")
    drain.main([UNIT, str(engine.port), "60"])


def test_another_process_with_the_engines_number_is_not_killed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: object) -> int:
        engine.process.kill()
        engine.process.wait()
        monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a number was killed"))
        return 1

    monkeypatch.setattr(drain, "wait", wait)
    drain.main([UNIT, str(engine.port), "60"])


def test_a_port_that_stays_closed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nft = tmp_path / "nft"
    nft.write_text("#!/bin/sh\necho 'Could not process rule' >&2; exit 1\n")
    nft.chmod(0o755)
    monkeypatch.setattr(drain, "NFT", str(nft))
    drain.main([UNIT])
    told = "the port may still be closed, see nft list table inet drain_rigup_my_chat: Could not process rule"
    assert told in capsys.readouterr().out
    nft.unlink()
    drain.main([UNIT])
    assert capsys.readouterr().out == ""


def test_other_ports_do_not_count(engine: Engine) -> None:
    assert drain.connections(engine.port) == 1
    assert drain.connections(engine.client.getsockname()[1]) == 1  # the client's own end is that port's
    assert drain.connections(1) == 0


def test_without_nft_it_says_that_requests_are_answered(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.hang_up()
    drain.main([UNIT, str(engine.port), "1"])
    assert "drain: new requests are still answered: " in capsys.readouterr().out


def test_the_port_is_closed_before_the_wait_and_opened_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nft = tmp_path / "nft"
    nft.write_text(f'#!/bin/sh\n[ "$1 $2" = "-f -" ] && cat > {tmp_path}/read\n')
    nft.chmod(0o755)
    monkeypatch.setattr(drain, "NFT", str(nft))
    monkeypatch.setattr(drain, "with_requests", lambda port: 0)
    monkeypatch.setenv("MAINPID", str(os.getpid()))
    drain.main([UNIT, "8000", "5"])
    assert (tmp_path / "read").read_text() == CLOSING
    drain.main([UNIT])
    table = "table inet drain_rigup_my_chat"
    assert (tmp_path / "read").read_text() == f"add {table}\ndelete {table}"


def test_a_wrong_call_says_how_to_call_it() -> None:
    program = (sys.executable, "-EsS", str(Path(drain.__file__)))
    done = subprocess.run((*program, UNIT, "8000"), capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 1
    assert "usage: drain.py UNIT PORT SECONDS" in done.stderr
