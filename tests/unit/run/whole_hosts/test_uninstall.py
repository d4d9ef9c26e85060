"""A run that uninstalls: what it finds, and that it changes nothing where another run holds the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rigup.operations import whole_removal
from rigup.run.audit_log import kept_here
from rigup.run.whole_hosts import uninstall
from rigup.run.whole_hosts.uninstall import UninstallRun
from tests.unit.run.test_runner_without_lease import WAS_HERE


@pytest.fixture
def removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The removals, by host with whether weights went; rigup's folder is there until then."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "opt"
    folder.mkdir()
    monkeypatch.setattr(whole_removal, "FOLDERS", (str(folder),))
    found: list[tuple[str, bool]] = []

    def remove(host: Any, weights: bool) -> None:
        folder.rmdir()
        found.append((host.name, weights))

    monkeypatch.setattr(uninstall, "remove_everything", remove)
    return found


@pytest.mark.parametrize("weights", [False, True])
def test_it_removes_once(
    local_run: Callable[..., UninstallRun], removed: list[tuple[str, bool]], weights: bool
) -> None:
    for state, times in (("changed", 1), ("unchanged", 1)):
        with local_run({"box": lambda folder: None}, UninstallRun) as run:
            run.connect(take_lease=True)
            run.find(weights)
            run.remove(weights)
        assert (run.results["box"].state, run.results["box"].errors) == (state, [])
        assert removed == [("box", weights)] * times


def test_gateways_send_no_more_requests_before_anything_goes(
    local_run: Callable[..., UninstallRun], removed: list[tuple[str, bool]]
) -> None:
    class Drains:
        def stop(self, services: dict[str, Any], change: Callable[[], object]) -> None:
            told.append((services, list(removed)))
            change()

    told: list[Any] = []
    drains: Any = Drains()
    with local_run({"box": lambda folder: None}, UninstallRun) as run:
        run.connect(take_lease=True)
        run.find(False)
        run.remove(False, drains)
    assert (told, removed) == ([({"box": ()}, [])], [("box", False)])


def test_it_is_recorded_here_alone(local_run: Callable[..., UninstallRun], removed: list[tuple[str, bool]]) -> None:
    for _ in range(2):
        with local_run({"box": lambda folder: None}, UninstallRun) as run:
            run.connect(take_lease=True)
            run.find(False)
            run.remove(False)
            assert run.finisher.recorder is None
    (record,) = kept_here("box")
    assert (record["verb"], record["result"]) == ("uninstall", "changed")
    assert record["changes"] == ["uninstall: rigup's files"]


def test_it_removes_nothing_once_another_run_has_had_the_host(
    local_run: Callable[..., UninstallRun], removed: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_run({"box": lambda folder: None}, UninstallRun) as run:
        run.connect(take_lease=True)
        run.find(False)
        monkeypatch.setattr(UninstallRun, "_claim", lambda *_: "1-2.3")
        run.remove(False)
    (error,) = run.results["box"].errors
    assert error.message.startswith(WAS_HERE)
    assert removed == []
