"""Long steps and systemd: a unit that is being stopped is waited for, by who stops it and by who comes after."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rigup.environment import LockedEnvironment, LockedUv
from rigup.errors import HostFailed
from rigup.operations import builds, environments, jobs, remote
from rigup.operations.jobs import Job
from rigup.operations.remote import Output
from rigup.operations.wheels import PackageSource
from rigup.plan import Build

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


def test_a_user_who_stops_while_it_is_waited_for_has_nothing_started(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = Systemd(monkeypatch, "deactivating", "deactivating", "inactive")
    monkeypatch.setattr(jobs, "_cancelled", False)
    monkeypatch.setattr(jobs, "gevent", SimpleNamespace(sleep=lambda _: jobs.cancel()))
    with pytest.raises(jobs.Cancelled) as caught:
        jobs.run(host, JOB)
    assert caught.value.message == "box: engine: cancelled before it started"
    assert systemd.told == []
    assert systemd.states == ["deactivating", "inactive"], "it was not waited for any longer"


def test_a_user_who_stops_while_the_host_is_asked_has_nothing_started(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = Systemd(monkeypatch, "inactive")
    monkeypatch.setattr(jobs, "_cancelled", False)
    monkeypatch.setattr(jobs, "_state", lambda *_: jobs.cancel() or {"ActiveState": "inactive"})
    with pytest.raises(jobs.Cancelled):
        jobs.run(host, JOB)
    assert systemd.told == []


BUILD = Build(engine="llama.cpp", version="b1", method="source", address="https://x/y", sha256="0" * 64)
ENVIRONMENT = Build(
    engine="vllm",
    version="1",
    method="wheel",
    environment=LockedEnvironment(engine="vllm", version="1", python="3.12.12", files={}),
    uv=LockedUv(version="1", files={}),
)


@pytest.mark.parametrize("kind", ["source", "environment"])
def test_what_a_job_that_is_being_stopped_works_on_is_prepared_anew_only_once_it_has_ended(
    host: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    systemd = Systemd(monkeypatch, "deactivating", "deactivating", "inactive")
    left: list[list[str]] = []
    nothing = remote.Output(False, "", "")
    for module in (builds, environments):
        monkeypatch.setattr(module, "remote", SimpleNamespace(ask=lambda *_, **__: nothing, write_file=lambda *_: None))
        monkeypatch.setattr(module, "debian_packages", lambda _: None)
        monkeypatch.setattr(module, "publish", lambda *_: None)
    monkeypatch.setattr(builds.cuda_packages, "have", lambda *_: None)
    monkeypatch.setattr(builds, "_send_source", lambda *_: left.append(list(systemd.states)))
    monkeypatch.setattr(environments, "_prepare", lambda *_: left.append(list(systemd.states)))
    if kind == "source":
        builds._compile(host, BUILD, "b", (), "")
    else:
        environments._provide(host, ENVIRONMENT, "e", PackageSource(), ())
    assert left == [["inactive"]]
    assert systemd.told == ["systemctl reset-failed", "systemd-run --quiet"]


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
