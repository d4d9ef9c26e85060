"""What apply says of its duration before the question."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.cli.output import results
from rigup.cli.output.console import Console
from rigup.errors import InputError
from rigup.lock import LockedFile
from rigup.plan import Checkpoint
from rigup.preflight import checks
from rigup.run import audit_log
from rigup.run.chains.timing import StepTime
from rigup.run.result import Change, HostResult
from rigup.settings import HostSettings, PackageSource
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
    changes = [Change("weights", "x"), Change("service", "release of chat")]
    hosts = {name: HostResult(name, "differs", changes, probe=Any) for name in ("gpu1", "gpu2")}  # type: ignore[arg-type]
    for result in hosts.values():
        result.pending_steps = {"weights", "start"}
    output = io.StringIO()
    run: Any = SimpleNamespace(results=hosts, plans=dict.fromkeys(hosts, ()))
    results.show_estimate(run, rates, Console(file=output, width=300))
    return plain(output.getvalue()), hosts["gpu1"].estimated_seconds


def test_other_hosts_of_the_fleet_tell_how_long_a_new_one_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    times = (StepTime("weights", 100, True, True, bytes=10 * GB), StepTime("start", 60, False, True))
    steps = [time.as_json() for time in times]
    record = {"when": "2026-11-20", "result": "changed", "steps": steps, "changes": ["service: release of code"]}
    text, seconds = shown(monkeypatch, {"gpu1": InputError("unreadable"), "gpu2": [record]}, {})
    assert text == "about 17 min 40 s, as in earlier applies: weights 16 min 40 s · start 1 min 00 s\n"
    assert seconds == 1060


def test_without_records_a_measurement_tells_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    text, seconds = shown(monkeypatch, {"gpu1": [], "gpu2": []}, {"gpu1": 118e6})
    assert text == "gpu1: 100.0 GB of weights at 118.0 MB/s, as measured now: 14 min 07 s\n"
    assert seconds is None


def test_without_either_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, {"gpu1": [], "gpu2": []}, {}) == ("", None)


def test_hosts_with_a_wheelhouse_are_told_what_it_sends(tmp_path: Path) -> None:
    (tmp_path / "weights/org/m/abc").mkdir(parents=True)
    (tmp_path / "weights/org/m/abc/a.gguf").write_bytes(b"12345")
    files = [LockedFile(path=name, size=5, sha256="a" * 64) for name in ("a.gguf", "b.gguf")]
    checkpoint = Checkpoint(repo="org/m", quant="Q4", bytes=10, revision="abc", files=tuple(files))
    plan = SimpleNamespace(build=None, driver=None, checkpoints=(checkpoint,))
    settings = {"gpu1": HostSettings(packages=PackageSource(wheelhouse=tmp_path)), "gpu2": HostSettings()}
    hosts = {name: HostResult(name, "differs", [Change("weights", "weights org/m Q4")]) for name in settings}
    output = io.StringIO()
    run: Any = SimpleNamespace(
        results=hosts, plans=dict.fromkeys(hosts, (plan,)), context=SimpleNamespace(settings=settings)
    )
    results.show_how_long(run, Console(file=output, width=300))
    first, second = plain(output.getvalue()).splitlines()
    assert first.startswith("this takes a while on gpu1: download 5 B: ") and "; send 5 B from this machine: " in first
    assert second.startswith("this takes a while on gpu2: download 10 B: ") and "send" not in second
