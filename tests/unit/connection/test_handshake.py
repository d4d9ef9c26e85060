"""What a greeting waits for is known, and a login shell that hangs ends it."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.connection.command_channel import Beginning, ShellSilent
from rigup.connection.handshake import SHELL_SECONDS, WaitingFor, shake_hands
from rigup.connection.login_shell import MARK
from rigup.connection.pyinfra_internals import CommandOutput, OutputLine
from rigup.errors import HostUnreachable
from rigup.facts.probe_script import AWAITING_NVML, script
from rigup.host import state_of


class Greeted:
    """Stands for a pyinfra Host. said: the lines that come before its login shell, or the probe, hangs."""

    def __init__(self, *said: str) -> None:
        self.name, self.said = "box", said
        self.connector_data: dict[str, Any] = {}
        self.given: Beginning | None = None

    def run_shell_command(self, _: Any, _beginning: Beginning, **__: Any) -> tuple[bool, Any]:
        self.given = _beginning
        for line in self.said:
            _beginning.heard(line)
        if MARK not in self.said:
            raise ShellSilent
        return True, CommandOutput([OutputLine("stdout", line) for line in self.said])


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ((), "its login shell"),
        (("Welcome!",), "its login shell"),
        ((MARK, "os debian-12"), "its answers"),
        ((MARK, "os debian-12", AWAITING_NVML), "NVML, which asks its driver"),
    ],
)
def test_what_a_host_is_waited_for(said: tuple[str, ...], what: str) -> None:
    host: Any = Greeted(*said)
    try:
        shake_hands(host)
    except HostUnreachable:
        assert MARK not in said
    assert state_of(host, WaitingFor).what == what


def test_a_login_shell_that_does_not_answer_is_named() -> None:
    host: Any = Greeted("Welcome!")
    with pytest.raises(HostUnreachable) as caught:
        shake_hands(host)
    assert caught.value.message.startswith("box: its login shell does not answer")
    assert f" {SHELL_SECONDS} s" in caught.value.message and "ssh box true" in (caught.value.hint or "")
    assert host.given.seconds == SHELL_SECONDS


def test_the_probe_says_when_only_nvml_is_missing() -> None:
    assert f"probe </dev/null; echo '{AWAITING_NVML}'; cat;" in script()
