"""A download that ended without an error and without being complete is told in words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rigup.operations import jobs, weights
from rigup.operations.weights import _why


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            '{"complete": false, "missing": ["a.gguf"], "bad": ["b.gguf"]}',
            "the download was cut short, as by a reboot: a.gguf, b.gguf not complete",
        ),
        ("python3: can't open file", "python3: can't open file"),
        ('"text"', '"text"'),
    ],
    ids=["cut short", "no check", "something else"],
)
def test_what_the_check_says_is_told_in_words(said: str, told: str) -> None:
    assert _why(said) == told


def test_a_job_that_somebody_left_for_other_files_of_the_revision_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[jobs.Job] = []
    written: list[str] = []
    monkeypatch.setattr(weights.jobs, "run", lambda host, job: ran.append(job))
    said = SimpleNamespace(ok=True)
    stand_in = {
        "script": lambda *_, **__: "",
        "ask": lambda *_, **__: said,
        "write_file": lambda *a: written.append(a[1]),
    }
    for name, function in stand_in.items():
        monkeypatch.setattr(weights.remote, name, function)
    host = SimpleNamespace(name="box", connector_data={})
    for key in ("q4", "q8", "q8"):
        job = {"key": key, "repo": "org/a.model", "revision": "0" * 40, "folder": "/w/org/a.model/0", "files": []}
        weights._fetch(host, job, None)
    assert [job.unit for job in ran] == [f"rigup-weights-org-a-model-{'0' * 12}-{key}" for key in ("q4", "q8", "q8")]
    assert len(set(written)) == 2
