"""What `rigup diff` prints of a comparison."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.cli import diff
from rigup.plan import Checkpoint
from rigup.run.result import Change, HostResult
from rigup.settings import HostSettings


@pytest.mark.parametrize("steps", [(), ("weights org/m Q4",)])
def test_pending_changes_come_with_how_long_they_take(
    steps: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = Checkpoint(repo="org/m", quant="Q4", bytes=125_000_000, revision="abc")
    plan = SimpleNamespace(build=None, driver=None, checkpoints=(checkpoint,))
    result = HostResult("gpu1", "differs" if steps else "unchanged", [Change("weights", step) for step in steps])
    found = SimpleNamespace(
        results={"gpu1": result},
        drift={"gpu1": ()},
        plans={"gpu1": (plan,)},
        context=SimpleNamespace(settings={"gpu1": HostSettings()}),
    )

    @contextmanager
    def opened(*_: Any) -> Iterator[Any]:
        yield found

    monkeypatch.setattr(diff.hosts, "open_inspection", opened)
    diff.run(argparse.Namespace(json=False, deep=False))
    told = capsys.readouterr().out
    assert ("download 125.0 MB: 1.00 s at 1 Gbit/s" in told) is bool(steps)
