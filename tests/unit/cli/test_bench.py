"""`rigup bench` as a user runs it: bad input, an endpoint by its address, what is kept, Ctrl-C, and comparisons."""

from __future__ import annotations

import copy
import csv
import io
import json
import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rigup.cli.bench import _show_results
from rigup.cli.main import main
from tests.unit.bench.conftest import Engine
from tests.unit.bench.conftest import engine as engine

QUICK = ("--concurrency", "2", "--input", "32", "--output", "5", "--requests", "20", "--warmup", "0")
URL = ("--url", "http://127.0.0.1:1")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


BAD = {
    ("--concurrency", "1,x"): (
        '--concurrency: "1,x" is not a list of whole numbers',
        "separate numbers with commas: --concurrency 1,8,64",
    ),
    ("--concurrency", "0"): ("--concurrency: 0 is not between 1 and 16384 requests at once", "use a smaller number"),
    ("--concurrency", "1,20000"): (
        "--concurrency: 20000 is not between 1 and 16384 requests at once",
        "use a smaller number",
    ),
    ("--input", "99999999"): (
        "--input: 99999999 is not between 1 and 10000000 tokens of prompt",
        "use a smaller number",
    ),
    ("--output", "-1"): ("--output: -1 is not between 1 and 1000000 tokens of answer", "use a smaller number"),
    ("--seconds", "0.1"): ("--seconds: 0.1 is not between 1 and 86400", "use 30 for a typical measurement"),
    ("--seconds", "5", "--requests", "5"): (
        "--seconds and --requests cannot be combined",
        "omit one of them",
    ),
    ("--concurrency", "8", "--requests", "5"): (
        "--requests 5 is less than --concurrency 8",
        "use --requests 32 or --seconds 30",
    ),
    ("--concurrency", "1024", "--input", "1000000"): (
        "--concurrency 1024 with --input 1000000 needs 1024000000 prompt tokens at once",
        "use at most 50000000 in total",
    ),
    ("--csv", "-", "--json"): ("--csv - and --json both write to standard output", "name a file for the CSV"),
}


@pytest.mark.parametrize("url", ["http://me:secret@a.lan", "http://a b", "file:///x", "http://a.lan/?key=x"])
def test_an_address_is_refused_by_the_name_of_its_option(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("bench", "--url", url)) == 2
    said = capsys.readouterr().err
    assert said.startswith("rigup: --url: ") and "secret" not in said


@pytest.mark.parametrize("words", BAD, ids=" ".join)
def test_bad_input_is_refused_before_anything_is_asked(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("bench", *URL, *words)) == 2
    out, err = capsys.readouterr()
    message, hint = BAD[words]
    if "--json" in words:
        assert json.loads(out)["error"] == {"message": message, "hint": hint}
    else:
        assert err == f"rigup: {message}\nhint: {hint}\n"


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (("--seconds", "nan"), '--seconds: "nan" '),
        (("--warmup", "-1"), "--warmup: -1 "),
        (("--timeout", "0"), "--timeout: 0 "),
        (("--service", "chat"), "--url "),
        (("--csv", "nowhere/a.csv"), "--csv: nowhere/a.csv: "),
    ],
)
def test_what_other_commands_refuse_in_the_same_words(
    words: tuple[str, ...], begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("bench", *URL, *words)) == 2
    assert capsys.readouterr().err.startswith(f"rigup: {begins}")


def test_a_key_that_is_missing_or_that_others_can_read_is_not_used(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("bench", *URL, "--api-key-file", "key")) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("rigup: --api-key-file: key does not exist") and hint.startswith("hint: create it ")
    (folder / "key").write_text("secret\n")
    (folder / "key").chmod(0o644)
    assert main(("bench", *URL, "--api-key-file", "key")) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("rigup: --api-key-file: key is readable ") and hint == "hint: chmod 600 key"


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("bench", *URL)) == 2
    assert capsys.readouterr().err.startswith("rigup: http://127.0.0.1:1: connection refused\nhint: ")


def test_what_was_measured_is_kept_and_told_in_every_form(
    engine: Callable[..., Engine], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "key").write_text("right\n")
    (folder / "key").chmod(0o600)
    mock = engine(key="right", itl=0.002, refuse_every=8)
    words = ("--url", mock.url, "--api-key-file", "key", *QUICK, "--csv", "figures.csv")
    assert main(("bench", *words, "--json")) == 0
    out, err = capsys.readouterr()
    (result,) = json.loads(out)["results"]
    file = result.pop("file")
    stored = json.loads((folder / file).read_text())
    assert stored == result
    assert file.startswith(f"results/127.0.0.1_{mock.url.rpartition(':')[2]}/mock/")
    (level,) = stored["levels"]
    counted, failed = level["requests"]["counted"], level["requests"]["failed"]
    assert (counted + failed, failed in (2, 3)) == (20, True)
    (row,) = csv.DictReader(io.StringIO((folder / "figures.csv").read_text()))
    assert (row["concurrency"], row["input"], row["output"], row["failed"]) == ("2", "32", "5", str(failed))
    assert float(row["ttft_p99_ms"]) == pytest.approx(level["ttft_ms"]["p99"], abs=0.001)
    assert f"2 at once: {failed}x HTTP 503: the queue is full" in err
    assert f"stored in {file}" in err
    assert "right" not in out + err + json.dumps(stored)


def test_what_cannot_be_kept_is_shown_all_the_same(
    engine: Callable[..., Engine], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "results").write_text("no folder")
    mock = engine(itl=0.002)
    assert main(("bench", "--url", mock.url, *QUICK)) == 2
    out, err = capsys.readouterr()
    assert "out tok/s" in out and "kept in" not in out
    where = f"results/127.0.0.1_{mock.url.rpartition(':')[2]}/mock"
    error, hint = err.splitlines()[-2:]
    assert error == f"rigup: cannot save the result in {where}: Not a directory" and hint.startswith("hint: ")


def test_what_cannot_be_kept_is_one_document_and_a_table_for_scripts(
    engine: Callable[..., Engine], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "results").write_text("no folder")
    assert main(("bench", "--url", engine(itl=0.002).url, *QUICK, "--json", "--csv", "figures.csv")) == 2
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["file"] is None and result["complete"]
    assert len((folder / "figures.csv").read_text().splitlines()) == 2


def test_a_csv_that_cannot_be_written_any_more_leaves_the_results_one_document(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _show_results(Namespace(csv="gone/a.csv", json=True), folder, [], []) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["results"] == []
    assert err.startswith("rigup: --csv: gone/a.csv: No such file or directory\nhint: ")


def test_a_level_without_an_answer_is_a_failure(
    engine: Callable[..., Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    mock = engine(refuse_all=True, spare_requests=1)
    assert main(("bench", "--url", mock.url, *QUICK, "--requests", "4")) == 1
    assert "incomplete: " in capsys.readouterr().out


def test_what_was_measured_until_ctrl_c_is_kept_and_marked(engine: Callable[..., Engine], folder: Path) -> None:
    words = ("--url", engine(ttft=0.01, itl=0.01).url, "--concurrency", "2,3", "--input", "16", "--output", "10")
    process = subprocess.Popen(
        [sys.executable, "-m", "rigup", "bench", *words, "--seconds", "4", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:  # the second level is under way
        seen += line
        if "3 at once, 16 in, window" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, seen + err
    (result,) = json.loads(out)["results"]
    assert (result["complete"], result["why"]) == (False, "stopped")
    assert [level["complete"] for level in result["levels"]] == [True, False]
    assert result["notes"][0] == "incomplete: stopped"
    assert "3 at once: interrupted; these figures cover the part measured until then" in result["notes"]
    assert json.loads((folder / result["file"]).read_text())["complete"] is False
    assert "Traceback" not in err


def figure(mean: float, spread: float, parts: int = 10) -> dict[str, Any]:
    """A latency whose parts lie evenly between mean - spread and mean + spread."""
    values = [mean + spread * (2 * n / (parts - 1) - 1) for n in range(parts)] if parts > 1 else [mean]
    return {"mean": mean, "p50": mean, "p95": mean, "p99": mean, "parts": {"mean": values, "p50": values, "p99": []}}


def result(speed: float, **more: Any) -> dict[str, Any]:
    latency = figure(1000 / speed, 10 / speed)
    rate = {"mean": speed, "parts": figure(speed, speed / 50)["parts"]["mean"]}
    rates = dict.fromkeys(("output_tokens_per_second", "prompt_tokens_per_second", "requests_per_second"), rate)
    level = {"concurrency": 8, "input": 64, "output": 32, "complete": True, **rates}
    level |= {"requests": {"counted": 990, "all": 1000, "failed": 0, "broken_off": 0}}
    level |= dict.fromkeys(("ttft_ms", "tpot_ms", "itl_ms"), latency)
    return {
        "schema": 1,
        "began": "2026-11-21T12:00:00Z",
        "complete": True,
        "why": "",
        "endpoint": {},
        "levels": [level],
    } | more


def compared(before: dict[str, Any], after: dict[str, Any], *words: str) -> int:
    for name, content in (("a", before), ("b", after)):
        Path(name).write_text(json.dumps(content))
    return main(("bench", "--compare", "a", "b", *words))


def test_a_change_beyond_the_noise_is_told_from_one_within(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {110.0: (0, "better"), 90.0: (1, "worse"), 100.5: (0, "noise"), 100.0: (0, "noise")}
    for speed, (code, verdict) in expected.items():
        assert compared(result(100.0), result(speed), "--json") == code
        changes = {row["figure"]: row for row in json.loads(capsys.readouterr().out)["changes"]}
        assert changes["output_tokens_per_second"]["verdict"] == verdict
        assert changes["output_tokens_per_second"]["percent"] == pytest.approx(speed - 100)
        assert changes["ttft_ms p50"]["verdict"] == verdict
        assert changes["ttft_ms p99"]["verdict"] == "unknown"
    # ten parts evenly within 2 %: sample variance 1.8107, Student's t of 18 degrees of freedom at 99 % is 2.878
    assert changes["output_tokens_per_second"]["noise"] == pytest.approx(2.878 * (2 * 1.8107 / 10) ** 0.5, rel=1e-3)


def silent(complete: bool = True, failed: int = 40) -> dict[str, Any]:
    """A result whose level got no answer, as the measuring program says it."""
    found = copy.deepcopy(result(100.0))
    (level,) = found["levels"]
    level |= dict.fromkeys(("ttft_ms", "tpot_ms", "itl_ms")) | {"complete": complete}
    level |= {name: {"mean": 0.0, "parts": [0.0] * 10} for name in level if name.endswith("_per_second")}
    level["requests"] = {"counted": 0, "all": 0, "failed": failed, "broken_off": 0}
    return found


def verdicts(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, float]]:
    rows = json.loads(capsys.readouterr().out)["changes"]
    return {row["figure"]: (row["verdict"], row["percent"]) for row in rows}


def test_a_level_that_answers_no_more_is_worse(capsys: pytest.CaptureFixture[str]) -> None:
    before = result(100.0)
    for rate in ("output_tokens_per_second", "prompt_tokens_per_second", "requests_per_second"):
        before["levels"][0][rate] = {"mean": 100.0, "parts": [100.0]}  # too few parts for a test of noise
    assert compared(before, silent(), "--json") == 1
    assert verdicts(capsys) == {
        "output_tokens_per_second": ("worse", -100.0),
        "prompt_tokens_per_second": ("worse", -100.0),
        "requests_per_second": ("worse", -100.0),
        "failed_requests_percent": ("worse", 100.0),
    }
    assert compared(silent(), before, "--json") == 0
    assert verdicts(capsys) == {"failed_requests_percent": ("better", -100.0)}


@pytest.mark.parametrize(
    ("failed", "code", "verdict"), [((0, 500), 1, "worse"), ((500, 0), 0, "better"), ((1, 4), 0, "noise")]
)
def test_more_failed_requests_are_worse(
    failed: tuple[int, int], code: int, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = (copy.deepcopy(result(100.0)) for _ in failed)
    for one, count in zip((before, after), failed, strict=True):
        one["levels"][0]["requests"]["failed"] = count
    assert compared(before, after, "--json") == code
    shares = [100 * count / (1000 + count) for count in failed]
    assert verdicts(capsys)["failed_requests_percent"] == (verdict, pytest.approx(shares[1] - shares[0]))


def test_the_share_of_failed_requests_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    after = copy.deepcopy(result(100.0))
    after["levels"][0]["requests"] |= {"all": 500, "failed": 500}
    assert compared(result(100.0), after) == 1
    row = next(line for line in capsys.readouterr().out.splitlines() if "failed" in line)
    # 2.576 standard errors of two proportions: a quarter failed of 2,000 requests, half of them each
    noise = 100 * 2.576 * (0.25 * 0.75 * 2 / 1000) ** 0.5
    assert " ".join(row.split()) == f"8 64 32 failed requests % 0.00 50.0 +50.0 points ± {noise:.1f} points worse"


def test_a_level_that_was_broken_off_before_any_answer_is_not_worse(capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(result(100.0), silent(complete=False, failed=0)) == 2
    assert capsys.readouterr().err == (
        "rigup: a and b have no figure in common\nhint: measure again; a level "
        "interrupted before its first answer has no figures\n"
    )


def test_what_else_differs_is_said_first(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = result(100.0, plan="sha256:1", complete=False, why="stopped"), result(110.0, plan="sha256:2")
    assert compared(before, after) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "plan: sha256:1 -> sha256:2"
    assert lines[1] == "the run of 2026-11-21T12:00:00Z is incomplete: stopped"
    row = next(line for line in lines if "output tokens/s" in line)
    assert row.split() == ["8", "64", "32", "output", "tokens/s", "100", "110", "+10.0", "%", "±", "1.8", "%", "better"]


def test_what_cannot_be_compared_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    other = copy.deepcopy(result(100.0))
    other["levels"][0]["concurrency"] = 9
    assert compared(result(100.0), other) == 2
    message = "rigup: a and b have no level in common\n"
    assert capsys.readouterr().err.startswith(message)
    Path("b").write_text("{}")
    assert main(("bench", "--compare", "a", "b")) == 2
    assert capsys.readouterr().err == "rigup: b: not a result of rigup bench\nhint: name a file in results/\n"
    assert main(("bench", "--compare", "a", "c")) == 2
    assert capsys.readouterr().err.startswith("rigup: c: No such file or directory\n")
