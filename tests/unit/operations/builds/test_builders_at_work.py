"""Who compiles and who takes: a host waits for its builder as long as that one is at work, and else helps itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.operations.builds import builders, builders_at_work, controller, records
from rigup.operations.builds import source as builds
from rigup.operations.primitives import jobs
from rigup.operations.primitives.remote import Output
from rigup.plan import Build
from rigup.settings import Builder, PackageSource

BUILD = Build(engine="llama.cpp", version="b1", method="source", address="https://x/y", sha256="0" * 64)


class Steps:
    """What was done, in order, in place of the real steps. finished: whether an earlier run left a result there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.finished = self.running = False
        self.records: set[str] = set()
        self.sendable = True
        monkeypatch.setattr(builds, "refuse_noexec", lambda _: None)
        monkeypatch.setattr(builds, "remote", SimpleNamespace(run=self._ask))
        monkeypatch.setattr(builds, "forget", lambda *_: None)
        monkeypatch.setattr(jobs, "going", lambda *_: self.running)
        monkeypatch.setattr(builds, "_compile", lambda host, *_, **__: self.done.append(f"{host.name} compiles"))
        monkeypatch.setattr(builders, "_record", self._record)
        monkeypatch.setattr(builds, "_send", self._send)
        monkeypatch.setattr(
            records, "read_record", lambda builder, name: name if builder.name in self.records else None
        )

    def _ask(self, host: Any, *words: str, **_: Any) -> Output:
        return Output(self.finished and words[0] == "test", "", "")

    def _record(self, host: Any, *_: Any) -> None:
        self.done.append(f"{host.name} is recorded")

    def _send(self, host: Any, builder: Builder, *_: Any) -> None:
        if not self.sendable:
            raise HostFailed(f"{host.name}: does not run")
        self.done.append(f"{host.name} takes it from {builder.name}")

    def provide(self, name: str, *named: str) -> list[str]:
        """What a host does to have the build."""
        found = tuple(Builder(builder, Path("/nowhere")) for builder in named)
        builds._provide(SimpleNamespace(name=name), BUILD, "b", ((), ""), PackageSource(), found)
        return self.done


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """Nobody has built anything."""
    yield Steps(monkeypatch)
    builders_at_work._at_work.clear()
    builders_at_work._expected.clear()
    builders_at_work._compiling.clear()


def test_without_a_builder_a_host_compiles_and_is_not_recorded(steps: Steps) -> None:
    steps.records = {"a", "b"}
    assert steps.provide("a") == ["a compiles"]


def test_a_builder_compiles_and_is_recorded_and_takes_its_own_when_it_has_lost_it(steps: Steps) -> None:
    assert steps.provide("a", "a") == ["a compiles", "a is recorded"]
    steps.records, steps.done = {"a"}, []
    assert steps.provide("a", "a") == ["a takes it from a"]


@pytest.mark.parametrize("left", ["finished", "running"])
def test_what_an_earlier_run_has_left_on_a_builder_is_not_recorded(steps: Steps, left: str) -> None:
    setattr(steps, left, True)
    assert steps.provide("a", "a") == ["a compiles"]


def test_another_takes_what_is_recorded_and_else_compiles(steps: Steps) -> None:
    assert steps.provide("b", "a") == ["b compiles"]
    steps.records, steps.done = {"a"}, []
    assert steps.provide("b", "a") == ["b takes it from a"]
    steps.sendable, steps.done = False, []
    assert steps.provide("b", "a") == ["b compiles"]


@pytest.mark.parametrize("lacks", ["", "ninja"])
def test_the_controlling_machine_compiles_for_hosts_that_are_like_it(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    monkeypatch.setattr(controller, "lacking", lambda _: lacks)
    monkeypatch.setattr(controller, "compiled", lambda *_: steps.done.append("controller compiles") or "b")
    monkeypatch.setattr(builds, "_source", lambda *_: Path("/nowhere"))
    assert steps.provide("b", "controller") == ["b compiles"], "the build is not of this machine's kind"
    monkeypatch.setattr(builds, "name_of", lambda *_: "b")
    steps.done = []
    assert steps.provide("b", "controller") == (
        ["b compiles"] if lacks else ["controller compiles", "b takes it from controller"]
    )


@pytest.mark.parametrize("ends", ["recorded", "settled", "lost"])
def test_it_waits_for_a_builder_that_is_at_work(steps: Steps, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    builders_at_work.begin(["a", "b"])
    builders_at_work.expect("a", "b")
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            if ends == "recorded":
                steps.records = {"a"}
            if ends == "lost":
                builders_at_work.end("a")
            else:
                builders_at_work.finish("a", "b")

    monkeypatch.setattr(builders, "gevent", SimpleNamespace(sleep=sleep))
    assert steps.provide("b", "a") == (["b takes it from a"] if ends == "recorded" else ["b compiles"])
    assert len(waited) == 3


def test_a_builder_that_fails_is_not_waited_for_any_longer(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    builders_at_work.begin(["a"])
    builders_at_work.expect("a", "b")
    monkeypatch.setattr(builds, "_compile", lambda *_, **__: (_ for _ in ()).throw(HostFailed("a: no compiler")))
    with pytest.raises(HostFailed):
        steps.provide("a", "a")
    assert not builders_at_work.expected("a", "b")


def test_a_user_who_stops_need_not_wait_for_a_builder(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    builders_at_work.begin(["a"])
    builders_at_work.expect("a", "b")
    monkeypatch.setattr(jobs, "_cancelled", True)
    with pytest.raises(jobs.Cancelled):
        steps.provide("b", "a")


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("/opt rw,nosuid,noexec,relatime\n", True),
        ("/ rw,relatime\n", False),
        ("", False),
    ],
)
def test_a_file_system_that_runs_nothing(monkeypatch: pytest.MonkeyPatch, said: str, refused: bool) -> None:
    monkeypatch.setattr(builds, "remote", SimpleNamespace(run=lambda *_: Output(True, said, "")))
    host = SimpleNamespace(name="box")
    if not refused:
        builds.refuse_noexec(host)
        return
    with pytest.raises(HostFailed) as caught:
        builds.refuse_noexec(host)
    assert caught.value.message == "box: /opt is mounted noexec, so builds in /opt/rigup/builds cannot run"


def test_of_several_builders_the_first_compiles_and_the_others_take_its_build(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("a", "b", "c")
    builders_at_work.begin(names)

    def compile_while_others_come(host: Any, *_: Any, **__: Any) -> None:
        steps.done.append(f"{host.name} compiles")
        for other in ("a", "c"):
            assert builders_at_work.claim(other, "b", {*names} - {other}) == "b"

    monkeypatch.setattr(builds, "_compile", compile_while_others_come)
    assert steps.provide("b", *names) == ["b compiles", "b is recorded"]
    steps.records, steps.done = {"b"}, []
    assert steps.provide("a", *names) == ["a takes it from b"]


@pytest.mark.parametrize("ends", ["fails", "is lost"])
def test_where_the_first_builder_fails_the_next_compiles(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    builders_at_work.begin(["a", "b"])
    assert builders_at_work.claim("a", "b", {"b"}) == "a"

    def sleep(seconds: float) -> None:
        if ends == "fails":
            builders_at_work.finish("a", "b")
        else:
            builders_at_work.end("a")

    monkeypatch.setattr(builders, "gevent", SimpleNamespace(sleep=sleep))
    assert steps.provide("b", "a", "b") == ["b compiles", "b is recorded"]
