"""`rigup eval`: what is refused before anything is asked, and what a comparison says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rigup.cli.main import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--url", "http://a", "--service", "b"], "--url cannot be combined with INVENTORY, --limit or --service"),
        (["--model", "m"], "--model and --api-key-file require --url"),
        (["--few-shot", "-1"], "--few-shot: -1 is not between 0 and 100"),
        (["--concurrency", "5000"], "--concurrency: 5000 is not between 1 and 1,024"),
        (["--max-tokens", "0"], "--max-tokens: 0 is not between 1 and 1,000,000"),
        (["--tasks", "gsm8k,../x"], '--tasks: "../x" is not a task name'),
        (["--tasks", ""], "--tasks: empty"),
        (["--questions", "few"], '--questions: "few" is not a number of questions'),
        (["--questions", "²"], '--questions: "²" is not a number of questions'),
        (["--questions", "9" * 5000], f'--questions: "{"9" * 5000}" is not a number of questions'),
        (["--questions", "0"], '--questions: "0" is not a number of questions'),
        (["--include-path", "/nowhere"], "--include-path: /nowhere is not a folder"),
        (["--url", "a.lan:8000"], '--url: "a.lan:8000" '),
        (["--url", "ftp://a.lan"], '--url: "ftp://a.lan" '),
        (["--url", "http://me:secret@a.lan"], "--url: the URL "),
        (["--compare", "/nowhere.json", "b.json"], "/nowhere.json: No such file or directory"),
    ],
)
def test_what_cannot_be_asked(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rigup.connection.startup.patch_for_many_hosts", lambda: None
    )  # it would be for all tests from here on
    assert main(["eval", *words]) == 2
    assert capsys.readouterr().err.startswith(f"rigup: {message}")


def stored(path: Path, each: list[float], quant: str, **conditions: Any) -> str:
    score = {
        "metric": "exact_match",
        "filter": "strict-match",
        "value": sum(each) / len(each),
        "stderr": 0.05,
        "higher_is_better": True,
        "each": each,
    }
    task = {"version": 3.0, "questions": len(each), "digest": "abc", "few_shot": 5, "scores": [score]}
    checkpoint = {"repo": "them/M2", "quant": quant}
    endpoint = {"host": "gpu1", "service": "chat", "engine": "vllm", "version": "0.33.0", "checkpoint": checkpoint}
    known = {"schema": 1, "harness": "0.4.13", "began": "2026-11-22T00:00:00+00:00", "seconds": 1.0}
    path.write_text(json.dumps(known | {"conditions": conditions, "endpoint": endpoint, "tasks": {"gsm8k": task}}))
    return str(path)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    """The same 100 questions to two checkpoints: 90 right, and 89 of those and no other."""
    fp8 = stored(tmp_path / "fp8.json", [1.0] * 90 + [0.0] * 10, "FP8", limit=100)
    return fp8, stored(tmp_path / "nvfp4.json", [1.0] * 89 + [0.0] * 11, "NVFP4", limit=100)


def test_a_question_less_is_not_a_difference_that_shows(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["eval", "--compare", *pair]) == 0
    first, second, _, line = capsys.readouterr().out.splitlines()
    assert first == "A  gpu1 chat: them/M2 FP8 on vllm 0.33.0, 2026-11-22T00:00:00+00:00"
    assert second == "B  gpu1 chat: them/M2 NVFP4 on vllm 0.33.0, 2026-11-22T00:00:00+00:00"
    assert " ".join(line.split()) == (
        "gsm8k exact_match (strict-match) 0.9000 0.8900 -0.0100 +- 0.0100, paired by question no significant difference"
    )


def test_what_is_worse_ends_with_1(tmp_path: Path, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    bad = stored(tmp_path / "bad.json", [1.0] * 60 + [0.0] * 40, "Q2", limit=50)
    assert main(["eval", "--json", "--compare", pair[0], bad]) == 1
    said = json.loads(capsys.readouterr().out)
    (difference,) = said["differences"]
    assert (difference["verdict"], difference["paired"], difference["questions"]) == ("worse", True, 100)
    assert difference["change"] == pytest.approx(-0.3)
    assert said["conditions"] == [{"what": "limit", "before": 100, "after": 50}]
    assert main(["eval", "--compare", bad, pair[0]]) == 0


def test_nothing_in_common(tmp_path: Path, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    other = json.loads(Path(pair[0]).read_text())
    other["tasks"] = {"drop": other["tasks"]["gsm8k"]}
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert main(["eval", "--compare", pair[0], str(tmp_path / "other.json")]) == 2
    assert capsys.readouterr().err.endswith("have no task in common\nhint: use the same --tasks for both\n")
