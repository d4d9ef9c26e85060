"""What apply says of its duration before the question."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.cli.output import results
from rigup.cli.output.console import Console
from rigup.errors import InputError
from rigup.preflight import checks
from rigup.run import audit_log
from rigup.run.chains.timing import StepTime
from rigup.run.result import Change, HostResult
from tests.terminal import plain

GB = 10**9


def shown(monkeypatch: pytest.MonkeyPatch, records: dict[str, Any], rates: dict[str, float]) -> tuple[str, Any]:
    """What is printed for two hosts, and the first one's estimate."""

    def kept(host: str) -> Any:
        if isinstance(records[host], Exception):
            raise records[host]
        return records[host]

    monkeypatch.setattr(audit_log, "kept_here", kept)
    monkeypatch.setattr(checks, "missing_weights", lambda probe, plans: 100 * GB)
    hosts = {name: HostResult(name, "differs", [Change("weights", "x")], probe=Any) for name in ("gpu1", "gpu2")}  # type: ignore[arg-type]
    for result in hosts.values():
        result.pending_steps = {"weights", "start"}
    output = io.StringIO()
    run: Any = SimpleNamespace(results=hosts, plans=dict.fromkeys(hosts, ()))
    results.show_estimate(run, rates, Console(file=output, width=300))
    return plain(output.getvalue()), hosts["gpu1"].estimated_seconds


def test_other_hosts_of_the_fleet_tell_how_long_a_new_one_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    times = (StepTime("weights", 100, True, True, bytes=10 * GB), StepTime("start", 60, False, True))
    record = {"when": "2026-11-20", "result": "changed", "steps": [time.as_json() for time in times]}
    text, seconds = shown(monkeypatch, {"gpu1": InputError("unreadable"), "gpu2": [record]}, {})
    assert text == "about 17 min 40 s, as in earlier applies: weights 16 min 40 s · start 1 min 00 s\n"
    assert seconds == 1060


def test_without_records_a_measurement_tells_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    text, seconds = shown(monkeypatch, {"gpu1": [], "gpu2": []}, {"gpu1": 118e6})
    assert text == "gpu1: 100.0 GB of weights at 118.0 MB/s, as measured now: 14 min 07 s\n"
    assert seconds is None


def test_without_either_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, {"gpu1": [], "gpu2": []}, {}) == ("", None)
