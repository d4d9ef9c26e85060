"""What verbs say that ask one host, or ask the user how to become root there."""

from __future__ import annotations

import getpass
import os
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import gevent
import pytest
from paramiko import SSHException

from rigup.cli import lock, log, main
from rigup.cli.sessions import session as hosts
from rigup.connection import connections
from rigup.errors import InputError
from rigup.operations.primitives import remote
from rigup.project import planning
from tests.command_line import CommandLine


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (gevent.Timeout(60), "Timeout: 60 seconds"),
        (SSHException("SSH session not active"), "SSHException: SSH session not active"),
        (ConnectionResetError(104, "reset"), "ConnectionResetError: [Errno 104] reset"),
        (EOFError(), "EOFError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_connection_lost_while_a_host_tells_its_log_is_said(
    error: BaseException, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(*words: object, **options: object) -> None:
        raise error

    CommandLine(tmp_path).describe(["box"])
    monkeypatch.chdir(tmp_path / "fleet")
    monkeypatch.setattr(connections.Connections, "handshake", lambda self, host: None)
    monkeypatch.setattr(remote, "run", lost)
    assert main.main(["log", "box"]) == 2
    assert f"box: connection lost ({what})" in capsys.readouterr().err


def test_hosts_that_were_greeted_are_let_go_whatever_fails_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(project: object, service: str | None) -> None:
        raise OSError(5, "Input/output error")

    CommandLine(tmp_path).describe(["box"])
    monkeypatch.chdir(tmp_path / "fleet")
    done: list[str] = []
    monkeypatch.setattr(connections.Connections, "begin", lambda self: done.append("begun"))
    monkeypatch.setattr(connections.Connections, "leave", lambda self: done.append("left"))
    monkeypatch.setattr(planning, "plans_to_apply", fails)
    with pytest.raises(OSError, match="Input/output error"):
        hosts.open_run(
            Namespace(inventory=None, limit=None, ask_sudo_password=False, sudo_password=None), hosts.plain_run
        )
    assert done == ["begun", "left"]


def test_a_password_is_not_asked_for_where_nobody_can_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr(getpass, "getpass", nobody)
    with pytest.raises(InputError) as caught:
        hosts.sudo_password(Namespace(ask_sudo_password=True))
    assert caught.value.message == "--ask-sudo-password needs input, but standard input is closed"
    assert caught.value.hint == "set RIGUP_SUDO_PASSWORD instead"


@pytest.mark.parametrize(
    ("verb", "words", "found"),
    [
        (log, ["log", "box"], "of-variable"),
        (log, ["log", "box", "--ask-sudo-password"], "typed"),
        (lock, ["lock"], None),
    ],
    ids=["said", "asked for", "not wanted"],
)
def test_the_password_is_in_nobodys_environment(
    verb: ModuleType, words: list[str], found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str | None] = []

    def run(args: Namespace) -> int:
        assert "RIGUP_SUDO_PASSWORD" not in os.environ
        used.append(hosts.sudo_password(args) if found else None)
        return 0

    monkeypatch.setenv("RIGUP_SUDO_PASSWORD", "of-variable")
    monkeypatch.setattr(getpass, "getpass", lambda prompt: "typed")
    monkeypatch.setattr(verb, "run", run)
    assert main.main(words) == 0
    assert used == [found]
