"""How somebody becomes root on a host: once asked, and at every later greeting of the same run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rigup.connection import sudo
from rigup.connection.handshake import Handshake
from rigup.errors import Unreachable
from rigup.facts.probe import Probe


class SudoHost:
    """Stands for a pyinfra Host whose sudo wants the password "lab"."""

    def __init__(self, said: str | None) -> None:
        self.name = "box"
        self.data = SimpleNamespace(_sudo_password=said)
        self.connector = SimpleNamespace(sudo_password=None)

    def run_shell_command(self, command: Any, _sudo: bool, _timeout: float) -> tuple[bool, Any]:
        return self.connector.sudo_password == "lab", SimpleNamespace(stderr="")


@pytest.fixture(autouse=True)
def greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sudo, "shake_hands", lambda *_, **__: Handshake("1000", "ada", "password", "", False, Probe(), {})
    )


@pytest.mark.parametrize(("given", "said"), [("lab", None), (None, "lab")], ids=["asked for", "in the inventory"])
def test_a_password_works_at_every_greeting_and_is_nowhere_that_pyinfra_reads_it(
    given: str | None, said: str | None
) -> None:
    host = SudoHost(said)
    for _ in range(2):
        sudo.shake_hands_as_root(host, given)
        assert host.data._sudo is True
        assert host.data._sudo_password is None


@pytest.mark.parametrize(
    ("given", "message"),
    [(None, "box: sudo needs a password for ada"), ("wrong", "box: sudo rejects the password for ada")],
)
def test_without_the_right_one_nobody_is_root(given: str | None, message: str) -> None:
    with pytest.raises(Unreachable) as caught:
        sudo.shake_hands_as_root(SudoHost(None), given)
    assert caught.value.message == message
