"""An apply that is answered with "no": nothing is changed, and a script hears what would have been."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import deploy
from pyinfra.operations import files

from rigup.cli import apply, hosts
from rigup.fleet import interrupt
from rigup.fleet.runner import Run


@deploy("service")
def role(root: Path) -> None:
    files.directory(name="release of chat", path=str(root / "a"))


def answered(run: Run, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """`rigup apply words` over this run, and a person who says no."""
    monkeypatch.setattr(hosts, "patch_for_many_hosts", lambda: None)
    monkeypatch.setattr(hosts, "open_run", lambda args, **_: (run.project, run))
    monkeypatch.setattr(interrupt, "stop_on_signals", nullcontext)
    monkeypatch.setattr(apply, "agreed", lambda console: False)
    parser = argparse.ArgumentParser()
    apply.add_arguments(parser)
    return apply.run(parser.parse_args([*words]))


def test_a_script_hears_what_would_have_changed(
    local_run: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    change: dict[str, Any] = {"role": "service", "step": "release of chat"}
    assert answered(local_run({"box": role}), monkeypatch, "--json") == 1
    (box,) = json.loads(capsys.readouterr().out)["hosts"]
    assert (box["state"], box["changes"], box["errors"]) == ("differs", [change], [])

    assert answered(local_run({"box": role}), monkeypatch, "--json", "--rolling", "2") == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["hosts"][0]["state"], said["hosts"][0]["changes"]) == ("not begun", [change])
    assert (said["rollout"]["batches"], said["rollout"]["next"]) == ([], "rigup apply --rolling 2")
    assert not (tmp_path / "box/a").exists()

    assert answered(local_run({"box": role}), monkeypatch) == 1
    assert "differs" not in capsys.readouterr().out
