"""A connection whose other end answers nothing any more is closed; one that answers, however slowly, is not."""

from __future__ import annotations

import gevent
import pytest
from paramiko import SSHException

from rigup.connection import liveness


class Transport:
    """Stands for paramiko's: `answers` requests are answered, the next one never is, or ends with `error`."""

    def __init__(self, answers: int, error: Exception | None = None) -> None:
        self.answers, self.error = answers, error
        self.asked, self.closed = 0, False

    def is_active(self) -> bool:
        return not self.closed

    def global_request(self, kind: str) -> None:
        assert kind == liveness.QUESTION
        self.asked += 1
        if self.asked <= self.answers:
            return
        if self.error:
            raise self.error
        gevent.sleep(3600)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "ASK_SECONDS", 0.0)
    monkeypatch.setattr(liveness, "DEAD_SECONDS", 0.05)


def test_an_end_that_falls_silent_is_given_up() -> None:
    transport = Transport(answers=3)
    gevent.spawn(liveness.watch, transport).get(timeout=60)
    assert transport.closed and transport.asked == 4


def test_a_connection_that_ended_by_itself_is_left_alone() -> None:
    transport = Transport(answers=1, error=SSHException("closed"))
    gevent.spawn(liveness.watch, transport).get(timeout=60)
    assert not transport.closed


def test_watching_can_be_stopped() -> None:
    transport = Transport(answers=10**9)
    watching = gevent.spawn(liveness.watch, transport)
    gevent.sleep(0.01)
    watching.kill(timeout=60)
    assert watching.dead and not transport.closed
