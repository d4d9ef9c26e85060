"""`rigup plan --calibrate`: from the records on this machine to constants that the next plan counts with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rigup.cli.main import main
from rigup.plan import Plan
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from rigup.run.audit_log import ApplyRecord, keep_here
from rigup.run.measured_memory import kept
from tests.unit.run.test_measured_memory import card, probed

GROUP = """\
rig = {"gpus": "2x RTX 3090"}
services = {"chat": {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp", "gpus": [0, 1]}}
"""
FILE = "catalogue/overheads/measured.toml"


@pytest.fixture(autouse=True)
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for folder, name, text in (("inventories", "fleet.py", 'rigs = ["a", "b"]\n'), ("group_data", "rigs.py", GROUP)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plans() -> list[Plan]:
    return plan_project(load_project(None))


def started(host: str, *used: int, day: int = 1) -> None:
    """Keeps the record of an apply that started the service with this much in use on each card."""
    plan = next(plan for plan in plans() if plan.host == host)
    found = kept(plan, probed(*(card(index, mib, 0) for index, mib in enumerate(used))), [])
    assert found is not None
    when = f"2026-11-{day:02} 10:00:00 UTC"
    keep_here([ApplyRecord(host, when, "ada", "apply", "changed", 1.0, "0.1.0", "", "", {}, (), (), {"chat": found})])


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["plan", "--calibrate", "--json", *words])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def test_nothing_on_record_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--calibrate"]) == 1
    assert capsys.readouterr().out == (
        "No start of a service on GPUs is on record on this machine; rigup apply records each one.\n"
    )


def test_two_starts_are_too_few_to_write(capsys: pytest.CaptureFixture[str], fleet: Path) -> None:
    started("a", 1500, 1600)
    started("b", 1500, 1600)
    assert main(["plan", "--calibrate", "--write"]) == 1
    told = capsys.readouterr().out
    name = "llama.cpp b11434 on 2x NVIDIA GeForce RTX 3090"
    assert f"{name}: not calibrated: 2 starts " in told and told.endswith("\nNothing was written.\n")
    assert not (fleet / FILE).exists()


def test_three_starts_change_what_the_next_plan_counts(capsys: pytest.CaptureFixture[str], fleet: Path) -> None:
    before = plans()[0]
    for day, host in enumerate(("a", "b", "a"), 1):
        started(host, 2000 + 100 * day, 1800, day=day)
    code, found = said(capsys)
    (calibration,) = found["calibrations"]
    assert (code, found["written"], calibration["starts"], calibration["runtime_mib"]) == (0, None, 3, 1191)
    assert plans()[0] == before

    code, found = said(capsys, "--write")
    assert (code, found["written"]) == (0, FILE)
    wanted = calibration["wanted_mib"]
    after = plans()[0]
    expected = [gpu.overhead_mib + wanted - 1191 for gpu in before.memory]
    assert [gpu.overhead_mib for gpu in after.memory] == pytest.approx(expected, abs=1)  # each is rounded up
    (figure,) = (figure for figure in after.figures if figure.figure == "overhead per GPU")
    assert figure.source == calibration_source(fleet)
    assert figure.source.startswith("measured on 3 starts, 2026-11-01 to 2026-11-03: at most ")


def calibration_source(fleet: Path) -> str:
    import tomllib

    (entry,) = tomllib.loads((fleet / FILE).read_text())["overhead"]
    source: str = entry["sources"]["runtime_mib"]
    return source


def test_calibrating_again_comes_to_the_same(capsys: pytest.CaptureFixture[str], fleet: Path) -> None:
    for day in (1, 2, 3):
        started("a", 2300, 1800, day=day)
    _, first = said(capsys, "--write")
    text = (fleet / FILE).read_text()
    # a start of a plan that counts with the new constant needs no other
    started("a", 2300, 1800, day=4)
    _, second = said(capsys, "--write")
    (before,), (after,) = first["calibrations"], second["calibrations"]
    assert (after["starts"], after["wanted_mib"]) == (4, before["wanted_mib"])
    assert after["runtime_mib"] == before["wanted_mib"]
    assert (fleet / FILE).read_text() != text and "measured on 4 starts" in (fleet / FILE).read_text()


def test_what_the_file_has_of_other_kinds_stays(capsys: pytest.CaptureFixture[str], fleet: Path) -> None:
    (fleet / FILE).parent.mkdir(parents=True)
    other = '[[overhead]]\nengine = "vllm"\nversion = "0.33.0"\ngpu = "NVIDIA H200"\ngpus = 8\nruntime_mib = 4000\n'
    (fleet / FILE).write_text(other + 'sources = { runtime_mib = "us" }\n')
    for day in (1, 2, 3):
        started("a", 2300, 1800, day=day)
    said(capsys, "--write")
    text = (fleet / FILE).read_text()
    assert '"NVIDIA H200"' in text and '"NVIDIA GeForce RTX 3090"' in text


def test_only_this_inventorys_hosts_count(capsys: pytest.CaptureFixture[str]) -> None:
    for day in (1, 2, 3):
        started("a", 2300, 1800, day=day)
    code, found = said(capsys, "--limit", "b")
    assert (code, found["calibrations"]) == (1, [])


def test_the_table_has_predicted_and_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "260")
    for day in (1, 2, 3):
        started("a", 2300, 2300, day=day)
    assert main(["plan", "--calibrate"]) == 0
    heading, row, *_ = capsys.readouterr().out.splitlines()
    assert " ".join(heading.split()) == "engine GPUs spread starts weights kv cache overhead total constant"
    (calibration,) = said(capsys)[1]["calibrations"]
    total = calibration["total"]
    assert row.startswith("llama.cpp b11434  2x NVIDIA GeForce RTX 3090  layers  3       unknown")
    assert f"-> 2,300 MiB ({total['error_mib']:+,.0f}, {total['error_percent']:+.1f} %; worst" in row
    assert row.endswith(f"1,191 MiB -> {calibration['wanted_mib']:,} MiB")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--write"], "rigup: --write requires --calibrate\nhint: rigup plan --calibrate --write\n"),
        (
            ["--calibrate", "--explain"],
            "rigup: --explain cannot be combined with --calibrate\nhint: omit one of them\n",
        ),
    ],
)
def test_options_that_mean_nothing_together(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *words]) == 2
    assert capsys.readouterr().err == message


def test_an_entry_without_a_source_is_not_an_entry(capsys: pytest.CaptureFixture[str], fleet: Path) -> None:
    (fleet / FILE).parent.mkdir(parents=True)
    (fleet / FILE).write_text('[[overhead]]\nengine = "vllm"\nversion = "1"\ngpu = "a"\ngpus = 0\nruntime_mib = 4\n')
    assert main(["plan"]) == 2
    assert f"{FILE}: overhead[0].gpus: input should be greater than or equal to 1" in capsys.readouterr().err
