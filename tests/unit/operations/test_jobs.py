"""Long steps and systemd: a unit that is being stopped is waited for, by who stops it and by who comes after."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.operations import jobs
from rigup.operations.jobs import Job
from rigup.operations.remote import Output

JOB = Job("rigup-build-x", "engine", ("true",), ())


class Systemd:
    """Stands for a host's systemd: a unit's state each time that it is asked for, and what it was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *states: str) -> None:
        self.states, self.told, self.now = list(states), [], 0.0
        monkeypatch.setattr(jobs, "remote", SimpleNamespace(ask=self.ask, tell=self.ask, LOST=(OSError,)))
        monkeypatch.setattr(jobs, "gevent", SimpleNamespace(sleep=self.sleep))
        monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: self.now))

    def ask(self, host: Any, *words: str, **_: Any) -> Output:
        if words[1] == "show":
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            return Output(True, f"ActiveState={state}\n", "")
        self.told.append(" ".join(words[:2]))
        return Output(True, "", "")

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def host() -> Any:
    return SimpleNamespace(name="box")


def test_a_unit_that_is_being_stopped_is_waited_for_before_it_is_started_anew(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = Systemd(monkeypatch, "deactivating", "deactivating", "failed", "active", "inactive")
    jobs.run(host, JOB)
    assert systemd.told == ["systemctl reset-failed", "systemd-run --quiet"]
    assert systemd.states == ["inactive"]


def test_one_that_does_not_end_is_named(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    systemd = Systemd(monkeypatch, "deactivating")
    with pytest.raises(HostFailed) as caught:
        jobs.run(host, JOB)
    assert caught.value.message == "box: engine: rigup-build-x is being stopped, and has not ended in 120 s"
    assert systemd.told == []


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["active", *["deactivating"] * 60, "inactive"], "waiting for it to stop"),
        (["deactivating"], "rigup-build-x was told to stop, and has not ended yet"),
    ],
    ids=["slow", "never"],
)
def test_a_unit_that_takes_long_to_stop_is_no_lost_connection(
    host: Any, monkeypatch: pytest.MonkeyPatch, states: list[str], said: str
) -> None:
    systemd, heard = Systemd(monkeypatch, "active", *states), []
    monkeypatch.setattr(jobs, "_follow", lambda *_: jobs.cancel() or (_ for _ in ()).throw(jobs.Cancelled("stop")))
    monkeypatch.setattr(jobs, "_cancelled", False)
    monkeypatch.setattr(jobs, "report", lambda told: heard.append(told.text))
    with pytest.raises(jobs.Cancelled):
        jobs.run(host, JOB)
    assert systemd.told == ["systemctl stop"]
    assert heard[-1] == said
    assert len(systemd.states) == 1, "it was watched to its end"


def test_a_line_that_is_cut_is_one(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(jobs, "report", lambda told: heard.append(told.text))
    monkeypatch.setattr(jobs.remote, "ask", lambda *_, **__: (_ for _ in ()).throw(OSError()))
    jobs._stop(host, JOB)
    assert heard == ["could not be stopped: the connection is gone"]
