"""A download that ended without an error and without being complete is told in words."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rigup.operations.primitives import remote
from rigup.operations.weights import checkpoint
from rigup.operations.weights.checkpoint import _why


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            '{"complete": false, "missing": ["a.gguf"], "bad": ["b.gguf"]}',
            "the download was interrupted, possibly by a reboot; incomplete: a.gguf, b.gguf",
        ),
        ("python3: can't open file", "python3: can't open file"),
        ('"text"', '"text"'),
    ],
    ids=["cut short", "no check", "something else"],
)
def test_what_the_check_says_is_told_in_words(said: str, told: str) -> None:
    assert _why(said) == told


JOB = {"repo": "org/a.model", "revision": "0" * 40, "folder": "/w/org/a.model/0", "files": []}
UNIT = f"rigup-weights-org-a-model-{'0' * 12}"


class Box:
    """Stands for a host: what it was told, in order, while these units are at work there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *at_work: str) -> None:
        self.name, self.connector_data, self.data = "box", dict[str, object](), SimpleNamespace()
        self.at_work, self.told = set(at_work), list[str]()
        monkeypatch.setattr(checkpoint.jobs, "run", lambda host, job: self.told.append(f"run {job.unit}"))
        for name, function in {
            "script": self.done,
            "make_folders": self.done,
            "write_file": self.write,
            "run": self.ask,
            "check_output": self.ask,
        }.items():
            monkeypatch.setattr(remote, name, function)

    def done(self, *_: object, **__: object) -> str:
        return ""

    def write(self, host: object, path: str, *_: str) -> None:
        self.told.append(f"write {path}")

    def ask(self, host: object, *words: str, **_: object) -> remote.Output:
        if words[1] == "list-units":
            assert words[-1] == f"{UNIT}-*"
            return remote.Output(True, "".join(f"{unit}.service loaded active running\n" for unit in self.at_work), "")
        if words[1] == "stop":
            self.told.append(f"stop {' '.join(words[2:])}")
        return remote.Output(True, "", "")


def test_a_job_that_somebody_left_for_other_files_of_the_revision_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(monkeypatch)
    for key in ("q4", "q8", "q8"):
        checkpoint._fetch(box, JOB, key, None)
    assert [told for told in box.told if told.startswith("run")] == [f"run {UNIT}-{key}" for key in ("q4", "q8", "q8")]
    assert len({told for told in box.told if told.startswith("write")}) == 2


def test_a_download_left_for_other_files_of_the_revision_is_stopped_and_its_own_taken_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Box(monkeypatch, f"{UNIT}-q4", f"{UNIT}-q8")
    checkpoint._fetch(box, JOB, "q8", None)
    assert [told for told in box.told if not told.startswith("write")] == [
        f"stop {UNIT}-q4.service",
        f"run {UNIT}-q8",
    ]


@pytest.mark.parametrize(("going", "told"), [(False, ["asked", "sent"]), (True, ["asked"])])
def test_nothing_is_sent_beside_a_download_that_goes_on_or_is_being_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, going: bool, told: list[str]
) -> None:
    said: list[str] = []
    monkeypatch.setattr(checkpoint.jobs, "going", lambda host, job: said.append("asked") or going)
    monkeypatch.setattr(checkpoint, "_send", lambda *_: said.append("sent"))
    checkpoint._fetch(Box(monkeypatch), JOB, "q8", tmp_path)
    assert said == told
