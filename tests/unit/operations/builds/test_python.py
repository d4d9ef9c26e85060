"""Who compiles the GPU kernels of an environment, and what of an interrupted build is continued."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.artifacts import CudaCompiler, LockedEnvironment, LockedUv
from rigup.errors import HostFailed
from rigup.operations.builds import builders, builders_at_work, python, records
from rigup.operations.builds.builders import kernel_builders
from rigup.operations.primitives import jobs
from rigup.operations.primitives.remote import Output
from rigup.plan import Build
from rigup.settings import Builder, PackageSource

LOCKED = LockedEnvironment(
    engine="sglang",
    version="0.5.23",
    python="3.12",
    files={"nvidia_cuda_nvcc-13.0.88-py3-none-any.whl": "0" * 64},
)
KERNELS = CudaCompiler(package="nvidia-cuda-nvcc", series="13.0", folder="cu13", kernels=("m:f",), source="x")
BUILD = Build(
    engine="sglang",
    version="0.5.23",
    method="wheel",
    environment=LOCKED,
    uv=LockedUv(version="1", files={"uv-1-x86_64.whl": "1" * 64}),
    compiler=KERNELS.for_rig(("8.6",)),
)
WITHOUT = BUILD.model_copy(update={"compiler": KERNELS.model_copy(update={"kernels": ()})})
PARTS = {"packages": "installs", "kernels": "adds kernels", "trial": "loads"}


class Steps:
    """What was done, in order, in place of the real steps.

    left: what an earlier run left on the host: "packages", "result", "job" (which goes and makes a result), or none.
    fails: the part whose job fails.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.left = self.fails = ""
        self.records: set[str] = set()
        self.told: list[str] = []
        remote = SimpleNamespace(run=self._ask, write_file=self._write)
        for module in (python, builders):
            monkeypatch.setattr(module, "remote", remote)
            monkeypatch.setattr(module, "report", lambda said: self.told.append(said.text))
        monkeypatch.setattr(python, "refuse_noexec", lambda _: None)
        monkeypatch.setattr(python, "_prepare", self._prepare)
        monkeypatch.setattr(python, "has_result", lambda *_: self.left == "result")
        monkeypatch.setattr(python, "make", lambda *_: self.done.append("makes it at once"))
        monkeypatch.setattr(python, "publish", lambda *_: self.done.append("publishes"))
        monkeypatch.setattr(python, "receive", lambda _, builder, __: self.done.append(f"gets {builder.name}'s"))
        monkeypatch.setattr(builders, "_record", lambda *words: self.done.append(f"records {' '.join(words[3:])}"))
        monkeypatch.setattr(
            records, "read_record", lambda builder, name: name if builder.name in self.records else None
        )
        monkeypatch.setattr(jobs, "going", lambda *_: self.left == "job")
        monkeypatch.setattr(jobs, "at_work", lambda *_: False)
        monkeypatch.setattr(jobs, "run", self._run)

    def _ask(self, _: Any, *words: str, **__: Any) -> Output:
        if words[0] == "rm":
            self.done.append("removes " + " ".join(word.rpartition("/")[2] for word in words[2:]))
        return Output(words[0] == "test" and self.left == "packages", "", "")

    def _prepare(self, *words: Any) -> None:
        words[-1](uv="/uv")

    def _write(self, _: Any, path: str, content: str) -> None:
        self.job = json.loads(content)

    def _run(self, _: Any, job: jobs.Job) -> None:
        part = job.command[-1]
        made = self.job["compiler"]["made"] if part in PARTS else None
        self.done.append(PARTS.get(part, "follows the job") + (f" of {made['by']}" if made else ""))
        assert (part == "trial") == (job.writable == ())
        assert bool(made) == (".unpacked-b" in str(job.readable))
        assert job.private_network or part == "packages" or self.left == "job"
        if self.left == "job":
            self.left = "result"
        if part == self.fails:
            raise HostFailed("b: it does not load")

    def provide(self, name: str, *named: str, build: Build = BUILD) -> list[str]:
        """What a host does to have the build."""
        found = kernel_builders(build, tuple(Builder(builder, Path("/nowhere")) for builder in named))
        python._provide(SimpleNamespace(name=name), build, "b", PackageSource(), (), found)
        return self.done


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """Nobody has built anything."""
    yield Steps(monkeypatch)
    builders_at_work._at_work.clear()
    builders_at_work._expected.clear()
    builders_at_work._compiling.clear()


@pytest.mark.parametrize(("named", "build"), [((), BUILD), (("a",), WITHOUT), (("controller",), BUILD)])
def test_without_a_builder_or_kernels_a_build_is_made_in_one_part(
    steps: Steps, named: tuple[str, ...], build: Build
) -> None:
    steps.records = {"a", "controller"}
    assert steps.provide("a", *named, build=build) == ["makes it at once"]


def test_a_builder_compiles_its_kernels_which_are_recorded(steps: Steps) -> None:
    kernels = "records kernels manifest.json"
    assert steps.provide("a", "a") == ["installs", "adds kernels", "publishes", kernels]
    assert steps.job["compiler"]["made"] is None
    assert not builders_at_work._compiling, "others wait for it no longer"


@pytest.mark.parametrize("host", ["b", "a"])
def test_recorded_kernels_are_tried_and_taken_by_others_and_by_a_builder_that_has_lost_them(
    steps: Steps, host: str
) -> None:
    steps.records = {"a"}
    assert steps.provide(host, "a") == ["installs", "gets a's", "loads of a", "adds kernels of a", "publishes"]
    assert steps.job["compiler"]["made"] == {"folder": "/opt/rigup/builds/.unpacked-b/b/kernels", "by": "a"}
    assert steps.job["manifest"]["built_by"] == host, "until some are taken"


def test_kernels_that_do_not_load_are_removed_and_compiled(steps: Steps) -> None:
    steps.records, steps.fails = {"a"}, "trial"
    assert steps.provide("b", "a") == [
        "installs",
        "gets a's",
        "loads of a",
        "removes .unpacked-b .packed-b.tar.gz",
        "adds kernels",
        "publishes",
    ]
    assert steps.told[-1] == "the kernels of a do not work here; compiling them: b: it does not load"


def test_packages_come_before_the_wait_for_a_builder(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    builders_at_work.begin(["a"])
    builders_at_work.expect("a", "b")

    def sleep(_: float) -> None:
        steps.done.append("waits")
        builders_at_work.finish("a", "b")

    monkeypatch.setattr(builders, "gevent", SimpleNamespace(sleep=sleep))
    assert steps.provide("b", "a") == ["installs", "waits", "adds kernels", "publishes"]
    assert steps.told == [
        "waiting for a, which is building the kernels of b",
        "a has no kernels of b; compiling them here",
    ]


def test_a_host_with_its_packages_goes_on_and_records_nothing(steps: Steps) -> None:
    steps.left = "packages"
    assert steps.provide("a", "a") == ["adds kernels", "publishes"]
    steps.done, steps.records = [], {"a"}
    assert steps.provide("b", "a") == ["gets a's", "loads of a", "adds kernels of a", "publishes"]


def test_a_result_of_an_earlier_run_is_published_and_not_recorded(steps: Steps) -> None:
    steps.left, steps.records = "result", {"a"}
    assert steps.provide("a", "a") == ["publishes"]
    steps.left, steps.done = "job", []
    assert steps.provide("a", "a") == ["follows the job", "publishes"]


@pytest.mark.parametrize("part", ["packages", "kernels"])
def test_a_failed_part_leaves_nothing_and_is_not_waited_for(steps: Steps, part: str) -> None:
    builders_at_work.begin(["a"])
    builders_at_work.expect("a", "b")
    steps.fails = part
    with pytest.raises(HostFailed):
        steps.provide("a", "a")
    assert steps.done[-1] == "removes .work-b .result-b"
    assert not builders_at_work.expected("a", "b")
