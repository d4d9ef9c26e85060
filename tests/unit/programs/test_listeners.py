"""Whose a port is: found by the sockets that listen, before and after a connection is made."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from rigup.programs import listeners, program_file
from rigup.programs.listeners import ForeignPort, SocketsChanged, UnitPort, listening

PROGRAM = program_file("listeners.py")
UNIT = "rigup-chat.service"


@contextmanager
def listener(host: str = "127.0.0.1", port: int = 0, dual: bool = False) -> Iterator[tuple[str, int]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, dualstack_ipv6=dual) as server:
        yield server.getsockname()[:2]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> UnitPort:
    """A unit to which this process belongs."""
    monkeypatch.setattr(listeners, "unit_of", lambda pid: UNIT if pid == str(os.getpid()) else "")
    return UnitPort(UNIT)


@pytest.mark.parametrize(
    ("host", "dual", "asked"),
    [
        ("127.0.0.1", False, "127.0.0.1"),
        ("0.0.0.0", False, "127.0.0.1"),
        ("::1", False, "::1"),
        ("::", False, "::1"),
        ("::", True, "127.0.0.1"),
    ],
)
def test_a_listener_is_found_at_every_address_that_it_has(host: str, dual: bool, asked: str, own: UnitPort) -> None:
    with listener(host, dual=dual) as (_, port):
        assert list(listening((asked, port)).values()) == [os.geteuid()]
        own.connect(asked, port, 5).close()
    assert listening((asked, port)) == {}


def test_another_address_or_port_is_another_listener() -> None:
    with listener("127.0.0.1") as (_, port):
        assert listening(("127.0.0.2", port)) == {}
        assert listening(("::1", port)) == {}


def test_the_port_of_another_process_is_not_the_unit_s() -> None:
    with listener() as (host, port), pytest.raises(ForeignPort) as refused:
        UnitPort(UNIT).connect(host, port, 5)
    assert f"(pid {os.getpid()}, " in str(refused.value) and str(refused.value).endswith(f"), not to {UNIT}")


def test_where_nobody_listens_there_is_no_connection(own: UnitPort) -> None:
    with listener() as (host, port):
        pass
    with pytest.raises(ConnectionRefusedError):
        own.connect(host, port, 5)


def test_a_connection_made_after_a_port_changed_hands_is_refused(own: UnitPort) -> None:
    with listener() as (host, port):
        own.learn((host, port))
    with (
        listener(host, port),
        socket.create_connection((host, port)) as connection,
        pytest.raises(SocketsChanged) as refused,
    ):
        own.check(connection)
    assert "now belongs to" in str(refused.value)


def test_a_connection_whose_listener_is_gone_is_refused(own: UnitPort) -> None:
    with ExitStack() as open_now:
        host, port = open_now.enter_context(listener())
        own.learn((host, port))
        with socket.create_connection((host, port)) as connection:
            own.check(connection)
            open_now.close()
            with pytest.raises(OSError):
                own.check(connection)


GROUPS = {
    "0::/system.slice/rigup-chat.service\n": UNIT,
    "0::/system.slice/rigup-chat.service/libpod-payload-12\n": UNIT,
    "12:cpu:/\n1:name=systemd:/system.slice/rigup-chat.service\n0::/\n": UNIT,
    "9:name=systemd:/\n0::/system.slice/rigup-chat.service\n": UNIT,
    "0::/user.slice/user-1000.slice/user@1000.service/app.slice/rigup-chat.service\n": "user@1000.service",
    "0::/machine.slice/libpod-1.scope/system.slice/rigup-chat.service\n": "libpod-1.scope",
    "0::/user.slice/user-1000.slice/session-1.scope\n": "session-1.scope",
    "0::/init.scope\n": "init.scope",
    "": "",
}


@pytest.mark.parametrize("text", GROUPS)
def test_a_process_belongs_to_the_outermost_unit(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def groups(pid: str) -> dict[str, str]:
        lines = (_first(text) if pid == "1" else text).splitlines()
        return {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}

    monkeypatch.setattr(listeners, "_groups", groups)
    listeners._systemd.cache_clear()
    assert listeners.unit_of("77") == GROUPS[text]
    listeners._systemd.cache_clear()


def _first(text: str) -> str:
    """The groups of systemd itself, in the hierarchy that it uses."""
    return (
        "1:name=systemd:/init.scope\n0::/\n" if "name=systemd:/system" in text else "1:name=systemd:/\n0::/init.scope\n"
    )


def test_the_guard_says_of_every_connection_whether_it_leads_to_the_unit() -> None:
    own = f"import sys; sys.path[0:0] = [{str(PROGRAM.parent)!r}]; import listeners; "
    own += f"listeners.unit_of = lambda pid: {UNIT!r}; listeners.main(*sys.argv[1:])"
    with ExitStack() as open_now:
        host, port = open_now.enter_context(listener())
        words = [sys.executable, "-IS", "-c", own, UNIT, "localhost", str(port)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as guard:
            assert guard.stdin and guard.stdout

            def ask() -> str:
                assert guard.stdin and guard.stdout
                guard.stdin.write("\n")
                guard.stdin.flush()
                return guard.stdout.readline().strip()

            assert guard.stdout.readline() == "ok\n"
            assert ask() == "ok"
            open_now.close()
            assert ask() == f"nothing listens on port {port}"
            open_now.enter_context(listener(host, port))
            assert "now belongs to" in ask()
            assert "now belongs to" in ask()
            guard.stdin.close()
    with listener() as (host, port):
        words = [sys.executable, "-I", str(PROGRAM), UNIT, host, str(port)]
        done = subprocess.run(words, input="\n", capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    assert first.endswith(f"), not to {UNIT}") and "now belongs to" in second


def test_a_service_that_begins_to_listen_meanwhile_is_asked_again(
    own: UnitPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listener() as (host, port):
        # nobody listened yet when it was looked at
        monkeypatch.setattr(UnitPort, "learn", lambda self, address: None)
        with pytest.raises(SocketsChanged):
            own.connect(host, port, 5)
