"""`rigup fit --html`: the page as reviewed, one file that loads nothing, with all that the table has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rigup.cli.fit.page import FitRow, FitTable, fit_page
from rigup.cli.main import main
from rigup.cli.page.content import PageOrigin
from rigup.cli.page.document import style_sheet
from tests.golden.golden import assert_golden
from tests.unit.cli.page.page_content import HOSTILE
from tests.unit.cli.page.page_reader import read

ORIGIN = PageOrigin("homelab", "2026-11-23 08:00:00 UTC", "0.1.0", "ab" * 32, "")
ROWS = (
    FitRow("gpt-oss-120b", "openai/gpt-oss-120b MXFP4", "lossless", "vllm", "TP4", "131,072", "60-140", "apache-2.0"),
    FitRow("GLM-4.7", "unsloth/GLM-4.7-GGUF UD-Q2_K_XL", "degraded", "llama.cpp", "4 GPUs*", "32,768", "4-9", "mit"),
)
TABLES = [
    FitTable(
        "boxes: 4x NVIDIA GeForce RTX 3090", "Model", ROWS, (("GLM-5.2", "lacks 300 GiB"), ("Kimi-K3", "too big"))
    ),
    FitTable("2x NVIDIA GeForce RTX 3090", "Model", (), (("GLM-5.2", "lacks 340 GiB"),)),
]


def page() -> str:
    return fit_page("Models for 2 rigs", ORIGIN, TABLES, ("License: mit",))


def test_the_page_is_as_reviewed() -> None:
    assert_golden("pages/fit.html", page().replace(style_sheet(), "STYLE").replace(_digest(page()), "DIGEST"))


def _digest(text: str) -> str:
    found = re.search(r"sha256-[A-Za-z0-9+/=]+", text)
    assert found
    return found[0]


def test_it_loads_nothing_and_names_what_it_shows() -> None:
    drawn = read(page())
    assert not drawn.all("script") and not drawn.all("img")
    assert all(link.attributes["href"].startswith("data:") for link in drawn.all("link"))
    for table in drawn.all("table"):
        heads, *rows = table.all("tr")
        assert all(len(row.children) == len(heads.children) for row in rows) and rows
    ids = {part.attributes["id"] for part in drawn.all("h2")}
    assert ids == {section.attributes["aria-labelledby"] for section in drawn.all("section")}


def test_what_a_catalogue_says_cannot_become_a_tag() -> None:
    bad = FitRow(*[HOSTILE] * 8)
    drawn = read(fit_page(HOSTILE, ORIGIN, [FitTable(HOSTILE, HOSTILE, (bad,), ((HOSTILE, HOSTILE),))]))
    assert not drawn.all("script") and not drawn.all("img")


def test_the_page_has_what_the_table_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["fit", "1x RTX 3090", "--min-speed", "20"]
    assert main([*words, "--html", "fit.html", "--json"]) == 0
    said = capsys.readouterr()
    listed = [row["model"] for row in json.loads(said.out)["rigs"][0]["models"]]
    assert said.err == "fit.html: written\n"
    (table,) = read((tmp_path / "fit.html").read_text()).of_class("fits")
    rows = table.all("tr")[1:]
    assert len(rows) == len(listed) > 0
    assert all(row.all("th")[0].text.startswith(name) for row, name in zip(rows, listed, strict=True))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--html", "-", "--json"], "--html - and --json: "),
        (["--html", "."], "--html: .: Is a directory"),
        (["--html", "gone/fit.html"], "--html: gone/fit.html: No such file or directory"),
    ],
)
def test_a_page_that_cannot_be_written(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "1x RTX 3090", *words]) == 2
    said = capsys.readouterr()
    assert message in said.out + said.err


def test_the_page_on_standard_output_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--model", "GLM-5.2", "--html", "-"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("<!DOCTYPE html>") and said.out.endswith("</html>\n") and said.err == ""


def test_the_page_says_what_it_leaves_out_and_rests_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--min-speed", "20.5", "--min-context", "100000", "--commercial"]
    assert main(["fit", "2x RTX 3090", *words, "--html", "-"]) == 0
    drawn = read(capsys.readouterr().out)
    said = drawn.all("main")[0].text
    assert "Listed only: at least 100,000 tokens of context, at least 20.5 tokens/s, commercial use." in said
    (footer,) = drawn.all("footer")
    assert "Planned from the catalogue; no host was asked." in footer.text and "ecrets" not in footer.text


def test_the_page_of_a_model_says_all_that_the_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "1x RTX 3090", "--model", "Kimi-K2.6", "--min-speed", "5", "--html", "-"]) == 0
    said = read(capsys.readouterr().out).all("main")[0].text
    for part in ("License: Modified MIT", "sampling: temperature 1", "must be named on the screen", "These rigs"):
        assert part in said
    assert "fits, but" not in said
