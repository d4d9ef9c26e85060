"""A verb that is answered with "no": nothing is changed, and a script hears what would have been."""

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

from rigup.cli import apply, prune, rollback
from rigup.cli.sessions import session as hosts
from rigup.connection import signals
from rigup.errors import Refused
from rigup.operations.service.history import RetainedRelease
from rigup.run import rollback as rolling_back
from rigup.run.prune import PruneRun, Removal
from rigup.run.rollback import RollbackRun
from rigup.run.runner import Run


@deploy("service")
def role(root: Path) -> None:
    files.directory(name="release of chat", path=str(root / "a"))


def answered(run: Run, monkeypatch: pytest.MonkeyPatch, *words: str, verb: Any = apply, yes: bool = False) -> int:
    """`rigup apply words` (or another verb's) over this run, and a person who says no, or yes."""
    monkeypatch.setattr(hosts, "open_run", lambda *_, **__: (run.context.project, run))
    monkeypatch.setattr(rollback, "open_rollback_run", lambda args: run)
    monkeypatch.setattr(signals, "stop_on_signals", nullcontext)
    monkeypatch.setattr(verb, "agreed", lambda *_: yes)
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    return int(verb.run(argparse.Namespace(verb="apply", **vars(parser.parse_args([*words])))))


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


def test_a_script_hears_what_prune_would_have_taken_away(
    local_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    removal = Removal("build vllm-1", "/opt/rigup/builds/vllm-1", 9)
    run = local_run({"box": role})
    run.__class__ = PruneRun
    monkeypatch.setattr(PruneRun, "_removals", lambda *_: (removal,))
    assert answered(run, monkeypatch, "--json", verb=prune) == 1
    assert json.loads(capsys.readouterr().out)["hosts"] == [
        {
            "host": "box",
            "state": "differs",
            "removed": [],
            "removable": [{"what": removal.what, "path": removal.path, "bytes": 9}],
            "errors": [],
        }
    ]


@pytest.fixture
def going_back(local_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A rollback of one host from release 2 of chat."""
    kept = tuple(RetainedRelease("chat", number, 0, number == 2, True, {}) for number in (1, 2))
    monkeypatch.setattr(rolling_back, "read_kept", lambda host: {"chat": kept})
    monkeypatch.setattr(rolling_back, "check_there", lambda *_: None)
    run = local_run({"box": role})
    run.__class__ = RollbackRun
    return run


def test_a_script_hears_what_rollback_would_have_put_back(
    going_back: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(going_back, monkeypatch, "--json", verb=rollback) == 1
    (box,) = json.loads(capsys.readouterr().out)["hosts"]
    assert (box["state"], box["changes"]) == ("differs", [{"role": "service", "step": "release 1 of chat (now 2)"}])


def test_a_release_that_would_not_start_is_not_gone_back_to(
    going_back: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[object, ...]] = []

    def refuse(host: str, probe: object, service: str, manifest: object) -> None:
        asked.append((host, service, manifest))
        raise Refused("box: chat was left")

    monkeypatch.setattr(rolling_back, "check_startable", refuse)
    assert answered(going_back, monkeypatch, "--json", verb=rollback) == 1
    (box,) = json.loads(capsys.readouterr().out)["hosts"]
    assert (asked, box["changes"]) == ([("box", "chat", {})], [])
    assert [error["message"] for error in box["errors"]] == ["box: chat was left"]


def test_a_rollback_says_what_the_next_apply_does(
    going_back: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rolling_back, "roll_back", lambda *_: None)
    assert answered(going_back, monkeypatch, verb=rollback, yes=True) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" the next rigup apply goes forward again")
