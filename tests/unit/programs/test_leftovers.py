"""What the program that lists leftovers takes for rigup's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rigup.programs import leftovers

REST = ("services", "packages", "cache")


def test_what_rigup_did_not_put_beside_the_builds_is_not_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "jobs", lambda: [])
    whole, half = "vllm-0.33.0-0123456789ab", "llama.cpp-b1-0123456789ab"
    own = [half, f".work-{half}", f".result-{half}", f".packed-{half}.tar.gz", f".unpacked-{half}"]
    for name in (whole, *own, "lost+found", ".Trash-0", "backup"):
        (tmp_path / "builds" / name).mkdir(parents=True)
    (tmp_path / "builds" / whole / "manifest.json").write_text("{}")
    for name in (whole, "lost+found", ".cache", "\x1b[2J-0123456789ab", "a\n-0123456789ab", "a-0123456789ab\n"):
        (tmp_path / "cache/chat" / name).mkdir(parents=True)
    (tmp_path / "cache/.packages" / whole).mkdir(parents=True)
    found = leftovers.main(tmp_path / "builds", tmp_path / "weights", *(tmp_path / name for name in REST))
    assert list(found["builds"]) == [whole]
    assert list(found["caches"]) == [f"{tmp_path}/cache/chat/{whole}"]
    assert sorted(found["unfinished"]) == sorted(str(tmp_path / "builds" / name) for name in own)


def test_what_drafts_for_a_release_is_needed_as_long_as_what_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "jobs", lambda: [])
    release = tmp_path / "services/chat/releases/1"
    release.mkdir(parents=True)
    keys = ("checkpoint", "draft", "member")
    loaded: dict[str, Any] = {key: {"repo": f"org/{key}", "quant": "BF16", "revision": "0" * 40} for key in keys}
    loaded["members"] = {"a": {"checkpoint": loaded["checkpoint"]}, "b": {"checkpoint": loaded.pop("member")}}
    (release / "release.json").write_text(json.dumps({"build": "vllm-1-0123456789ab", **loaded}))
    found = leftovers.main(tmp_path / "builds", tmp_path / "weights", *(tmp_path / name for name in REST))
    assert found["needed_weights"] == [f"{tmp_path}/weights/org/{key}/{'0' * 40}" for key in keys]
