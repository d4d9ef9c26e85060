"""Whose line is measured before the question: only of hosts that are about to download much, and without a token."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import gevent.pool
import pytest

from rigup.lock import LockedFile
from rigup.plan import Checkpoint
from rigup.run.result import HostResult
from rigup.run.weights import line_speeds

FILES = (LockedFile(path="model.gguf", size=9, sha256="a" * 64),)
CHECKPOINT = Checkpoint(repo="o/m", quant="Q4_1", revision="f" * 40, files=FILES, bytes=9)
SETTINGS = SimpleNamespace(
    packages=SimpleNamespace(wheelhouse=None), weights_limits=(8, 0), source_of=lambda location: ("https://hub", None)
)


def measured(monkeypatch: pytest.MonkeyPatch, missing: float = 3e9, pending: str = "weights", **settings: Any) -> Any:
    """What is found for one host whose line is 118 MB/s fast."""
    asked: list[tuple[Any, ...]] = []

    def ask(*words: Any) -> float:
        asked.append(words[1:])
        return 118e6

    monkeypatch.setattr(line_speeds, "at_work_on", lambda *_: nullcontext())
    monkeypatch.setattr(line_speeds, "missing_weights", lambda *_: missing)
    monkeypatch.setattr(line_speeds, "bytes_per_second", ask)
    result = HostResult("box", "differs", probe=SimpleNamespace(), pending_steps={pending})  # type: ignore[arg-type]
    context: Any = SimpleNamespace(
        state=SimpleNamespace(inventory=[SimpleNamespace(name="box")], pool=gevent.pool.Pool(2)),
        results={"box": result},
        plans={"box": (SimpleNamespace(checkpoints=(CHECKPOINT,)),)},
        settings={"box": SimpleNamespace(**{**vars(SETTINGS), **settings})},
    )
    found = line_speeds.line_speeds(context)
    assert asked == ([(CHECKPOINT, "https://hub", 8)] if found else [])
    return found


def test_a_host_that_lacks_much_is_measured_within_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch) == {"box": 118e6}


def test_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch, missing=1e9) == {}
    assert measured(monkeypatch, pending="start") == {}
    assert measured(monkeypatch, packages=SimpleNamespace(wheelhouse="vendored")) == {}
    assert measured(monkeypatch, source_of=lambda location: ("https://hub", "hf_secret")) == {}
