"""Long steps and systemd: a unit that is being stopped is waited for, by who stops it and by who comes after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.artifacts import LockedEnvironment, LockedUv
from rigup.errors import HostFailed
from rigup.operations.builds import python as environments
from rigup.operations.builds import source as builds
from rigup.operations.primitives import jobs, proxy, remote
from rigup.operations.primitives.jobs import Job
from rigup.operations.primitives.remote import Output
from rigup.plan import Build
from rigup.settings import PackageSource

JOB = Job("rigup-build-x", "engine", ("true",), ())


class Systemd:
    """Stands for a host's systemd: a unit's state each time that it is asked for, and what it was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *states: str) -> None:
        self.states, self.told, self.now = list(states), [], 0.0
        self.shown: Callable[[float], str] = lambda now: ""
        monkeypatch.setattr(
            jobs,
            "remote",
            SimpleNamespace(
                run=self.ask,
                check_output=self.ask,
                CONNECTION_ERRORS=(OSError,),
                reconnect=lambda host: self.told.append("reconnect"),
            ),
        )
        monkeypatch.setattr(jobs, "gevent", SimpleNamespace(sleep=self.sleep))
        monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: self.now))

    def ask(self, host: Any, *words: str, **_: Any) -> Output:
        if words[1] == "show":
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            if state == "silent":
                raise TimeoutError
            return Output(True, f"ActiveState={state}\n{self.shown(self.now)}", "")
        self.told.append(" ".join(words[:2]))
        return Output(True, "", "")

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def host() -> Any:
    return SimpleNamespace(name="box")


def test_a_unit_that_is_being_stopped_is_waited_for_before_it_is_started_again(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = Systemd(monkeypatch, "deactivating", "deactivating", "failed", "active", "inactive")
    jobs.run(host, JOB)
    assert systemd.told == ["sh -c", "systemd-run --quiet"]
    assert systemd.states == ["inactive"]


def test_a_lost_connection_is_made_again(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    systemd = Systemd(monkeypatch, "active", "silent", "inactive")
    jobs.run(host, JOB)
    assert systemd.told == ["reconnect"]


@pytest.mark.parametrize(("how", "told"), [(jobs.Cancelled("box: stopped"), ["systemctl stop"]), (SystemExit(), [])])
def test_only_who_is_cancelled_stops_the_job(
    host: Any, monkeypatch: pytest.MonkeyPatch, how: BaseException, told: list[str]
) -> None:
    systemd = Systemd(monkeypatch, "active", "active", "inactive")

    def interrupted(seconds: float) -> None:
        systemd.now += seconds
        if not systemd.told:
            monkeypatch.setattr(jobs, "gevent", SimpleNamespace(sleep=systemd.sleep))
            raise how

    monkeypatch.setattr(jobs, "gevent", SimpleNamespace(sleep=interrupted))
    with pytest.raises(type(how)):
        jobs.run(host, JOB)
    assert systemd.told == told


def test_one_that_does_not_end_is_named(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    systemd = Systemd(monkeypatch, "deactivating")
    with pytest.raises(HostFailed) as caught:
        jobs.run(host, JOB)
    assert caught.value.message == "box: engine: rigup-build-x did not stop within 120 s"
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
def test_what_a_job_that_is_being_stopped_works_on_is_prepared_again_only_once_it_has_ended(
    host: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    systemd = Systemd(monkeypatch, "deactivating", "deactivating", "inactive")
    left: list[list[str]] = []
    nothing = remote.Output(False, "", "")
    for module in (builds, environments):
        monkeypatch.setattr(module, "remote", SimpleNamespace(run=lambda *_, **__: nothing, write_file=lambda *_: None))
        monkeypatch.setattr(module, "refuse_noexec", lambda _: None)
    monkeypatch.setattr(builds, "publish", lambda *_: None)
    monkeypatch.setattr(builds, "debian_packages", lambda _: None)
    monkeypatch.setattr(environments, "have_packages", lambda *_: None)
    monkeypatch.setattr(builds, "have_versions", lambda *_: None)
    monkeypatch.setattr(builds, "_send_source", lambda *_: left.append(list(systemd.states)))
    monkeypatch.setattr(environments, "_prepare", lambda *_: left.append(list(systemd.states)))
    if kind == "source":
        builds._provide(host, BUILD, "b", ((), ""), PackageSource(), ())
    else:
        environments._provide(host, ENVIRONMENT, "e", PackageSource(), (), ())
    assert left == [["inactive"]]
    assert systemd.told == ["sh -c", "systemd-run --quiet"]


DOWNLOAD = Job("rigup-weights-x", "weights", ("true",), (), quiet_seconds=180, computes=False)


def test_a_download_that_shows_no_progress_is_stopped_and_named_with_what_it_did_last(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = Systemd(monkeypatch, "inactive", *["active"] * 250, "inactive")
    systemd.shown = lambda now: f"StatusText={min(int(now), 20)}/100 bytes\nCPUUsageNSec={int(now * 1e9)}"
    with pytest.raises(HostFailed) as caught:
        jobs.run(host, DOWNLOAD)
    assert caught.value.message == (
        "box: weights: rigup-weights-x showed no progress for 3 min 00 s and was stopped; its last status: 20/100 bytes"
    )
    assert caught.value.hint == "run the same command again; on the host: journalctl -u rigup-weights-x"
    assert 200 <= systemd.now < 300
    assert systemd.told[-1] == "systemctl stop"


@pytest.mark.parametrize("shown", ["StatusText={now}/100 bytes\n", "CPUUsageNSec={now}000000000\n"])
def test_a_job_that_says_or_computes_something_is_waited_for(
    host: Any, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    systemd = Systemd(monkeypatch, "inactive", *["active"] * 2000, "inactive")
    systemd.shown = lambda now: shown.format(now=int(now))
    jobs.run(host, JOB)
    assert systemd.now >= 1999
    assert "systemctl stop" not in systemd.told


def test_a_job_that_only_looks_now_and_then_does_not_compute(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    systemd = Systemd(monkeypatch, "inactive", *["active"] * 2000, "inactive")
    systemd.shown = lambda now: f"CPUUsageNSec={int(now * 1e5)}\n"
    with pytest.raises(HostFailed, match=r"15 min 00 s .*: none"):
        jobs.run(host, JOB)


@pytest.mark.parametrize(
    ("status", "hint"), [(5, "take another file"), (1, "on the host: journalctl -u rigup-build-x")]
)
def test_what_to_do_depends_on_how_a_job_ended(
    host: Any, monkeypatch: pytest.MonkeyPatch, status: int, hint: str
) -> None:
    systemd = Systemd(monkeypatch, "inactive", "failed")
    systemd.shown = lambda now: f"ExecMainStatus={status}"
    monkeypatch.setattr(jobs, "_last_words", lambda *_: "no such file")
    with pytest.raises(HostFailed) as caught:
        jobs.run(host, replace(JOB, hints={5: "take another file"}))
    assert caught.value.hint == hint


@pytest.mark.parametrize("private", [False, True])
def test_a_job_that_downloads_has_the_hosts_proxy(host: Any, monkeypatch: pytest.MonkeyPatch, private: bool) -> None:
    words: list[str] = []
    systemd = Systemd(monkeypatch, "inactive", "active", "inactive")
    monkeypatch.setattr(jobs.remote, "check_output", lambda host, *given, **_: words.extend(given))
    jobs.run(host, replace(JOB, private_network=private))
    assert systemd.told == ["sh -c"]
    assert (f"--property={proxy.PROPERTY}" in words) is not private


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["active", *["deactivating"] * 60, "inactive"], "waiting for it to stop"),
        (["deactivating"], "rigup-build-x has not stopped yet"),
    ],
    ids=["slow", "never"],
)
def test_a_unit_that_takes_long_to_stop_is_not_a_lost_connection(
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
    monkeypatch.setattr(jobs.remote, "run", lambda *_, **__: (_ for _ in ()).throw(OSError()))
    jobs._stop(host, JOB)
    assert heard == ["could not stop: connection lost"]


@pytest.mark.parametrize(
    "status", [f"{'9' * 4000}/1 bytes", f"1/{'9' * 400} bytes", f"{'9' * 5000}/{'9' * 5000}", "٣/٣ x"]
)
def test_numbers_that_nothing_on_a_host_has_are_words(host: Any, monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    systemd, heard = Systemd(monkeypatch, "inactive", "active", "inactive"), []
    systemd.shown = lambda _: f"StatusText={status}\nCPUUsageNSec={'9' * 5000}\n"
    monkeypatch.setattr(jobs, "report", heard.append)
    jobs.run(host, JOB)
    assert [(said.done, said.total) for said in heard if said.text] == [(0, 0)] * len(heard)
    assert heard


def test_the_kernel_bounds_the_files_of_every_job(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Systemd(monkeypatch, "inactive")
    started: list[str] = []
    monkeypatch.setattr(jobs.remote, "check_output", lambda _, *words, **__: started.extend(words))
    jobs.run(host, JOB)
    assert f"--property=LimitFSIZE={2**34}" in started
    jobs.run(host, replace(DOWNLOAD, largest_file=100))
    assert "--property=LimitFSIZE=100" in started
