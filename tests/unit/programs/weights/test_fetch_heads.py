"""fetch_heads.py against a hub: the beginnings of files, each with the size of its file."""

from __future__ import annotations

import pytest

from rigup.programs.weights import fetch_heads
from rigup.programs.weights.weights_folder import EXIT_DENIED, EXIT_GONE
from tests.unit.programs.conftest import Weights

FIRST, SECOND = "model-00001.gguf", "quants/model 00002+x.gguf"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_heads, "FIRST", 5000)
    monkeypatch.setattr(fetch_heads, "NEXT", 700)
    monkeypatch.setattr(fetch_heads.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(fetch_heads.weights, "end_on_signals", lambda: None)


def check_heads(weights: Weights) -> None:
    for path, most in ((FIRST, 5000), (SECOND, 700)):
        found, whole = (weights.folder / path).read_bytes(), weights.contents[path]
        assert found == whole[:most] + bytes(len(whole) - most)


def test_files_have_their_beginnings_and_their_sizes(weights: Weights) -> None:
    assert fetch_heads.main([str(weights.job(FIRST, SECOND))]) == 0
    check_heads(weights)
    assert {entry["range"] for entry in weights.requests(FIRST)} == {"bytes=0-4999"}
    asked = len(weights.requests())
    assert fetch_heads.main([str(weights.job(FIRST, SECOND))]) == 0
    assert len(weights.requests()) == asked, "what is there is not asked for"


def test_a_file_shorter_than_its_header_may_be_is_whole(weights: Weights) -> None:
    assert fetch_heads.main([str(weights.job("config.json", "empty"))]) == 0
    assert weights.fetched("config.json", "empty")


def test_a_hub_that_knows_no_ranges_is_cut_off(weights: Weights) -> None:
    weights.hub.faults(ignore_range=True)
    assert fetch_heads.main([str(weights.job(FIRST, SECOND))]) == 0
    check_heads(weights)


def test_a_hub_that_refuses_is_named(weights: Weights, capsys: pytest.CaptureFixture[str]) -> None:
    weights.hub.faults(gated=True)
    assert fetch_heads.main([str(weights.job(FIRST))]) == EXIT_DENIED
    assert f"refuses {weights.repo} (403, no token was given)" in capsys.readouterr().err
    weights.hub.faults()
    assert fetch_heads.main([str(weights.job(FIRST, revision="0" * 40))]) == EXIT_GONE


def test_a_hub_that_breaks_off_is_asked_again_and_then_named(
    weights: Weights, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch_heads.main([str(weights.job(FIRST, hub="http://127.0.0.1:9"))]) == 1
    assert f"error: {FIRST} from 127.0.0.1:9: " in capsys.readouterr().err
