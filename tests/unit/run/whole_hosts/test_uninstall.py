"""A run that uninstalls: what it finds, and that it changes nothing where another run holds the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rigup.operations import whole_removal
from rigup.run.whole_hosts import uninstall
from rigup.run.whole_hosts.uninstall import UninstallRun


@pytest.fixture
def removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The removals, by host with whether weights went; rigup's folder is there until then."""
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


def test_it_removes_nothing_once_another_run_has_had_the_host(
    local_run: Callable[..., UninstallRun], removed: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_run({"box": lambda folder: None}, UninstallRun) as run:
        run.connect(take_lease=True)
        run.find(False)
        monkeypatch.setattr(UninstallRun, "_claim", lambda *_: "1-2.3")
        run.remove(False)
    (error,) = run.results["box"].errors
    assert "another rigup run changed this host" in error.message
    assert removed == []
