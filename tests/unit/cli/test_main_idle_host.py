"""A host that serves nothing, `services = {}`: planned, told, compared, and its last service can be taken away."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import roles.site
from rigup.cli.main import main
from rigup.cli.output.plan import show
from rigup.cli.sessions.session import open_run, plain_run
from rigup.connection import connections
from rigup.facts.probe import Probe
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from rigup.project.scrape_targets import scraping_of
from rigup.project.settings import read_settings
from rigup.run.drift import drift_of
from rigup.settings import HostSettings
from tests.command_line import CommandLine
from tests.unit.run.test_drift import LEFT_OVER

RIG: dict[str, Any] = {"gpus": "2x RTX 3090", "hosts_per_service": 2}
LEFT = Probe(current={"chat": "3", "old": "1"})


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two hosts whose only service was taken out of group_data, and one that serves."""
    made = CommandLine(tmp_path)
    made.describe(["a", "b"])
    monkeypatch.chdir(made.fleet)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (made.fleet / "inventories").mkdir(exist_ok=True)
    for path in (made.fleet / "inventories").iterdir():
        path.write_text('pair = ["a", "b"]\nbox = ["c"]\n')
    (made.fleet / "group_data/pair.py").write_text(f"rig = {RIG}\nservices = {{}}\nmonitoring = {{}}\n")
    (made.fleet / "group_data/box.py").write_text(
        'rig = {"gpus": []}\nservices = {"chat": {"model": "SmolLM2-135M-Instruct"}}\n'
    )
    return made.fleet


def test_it_has_no_plan_and_that_is_said(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [plan.host for plan in plan_project(load_project(None))] == ["c"]
    assert main(["plan", "--limit", "pair"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a, b: serves nothing (services is empty)",
        "  rigup apply --remove removes earlier services",
        "",
        "no services planned, none refused",
    ]
    assert main(["plan"]) == 0
    assert "\n\na, b: serves nothing (services is empty)\n" in capsys.readouterr().out
    file = io.StringIO()
    show((), Console(file=file))
    assert "serves nothing" not in file.getvalue()


def test_a_run_has_it_with_its_settings(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections.Connections, "begin", lambda self: None)
    arguments = SimpleNamespace(inventory=None, limit="pair", ask_sudo_password=False, sudo_password=None, remove=True)
    _, run = open_run(arguments, plain_run)  # type: ignore[arg-type]
    assert run.plans == {"a": (), "b": ()}
    assert all(settings.remove and settings.monitoring for settings in run.context.settings.values())


def test_it_may_still_tell_of_itself(fleet: Path) -> None:
    project = load_project(None, "pair")
    wanted = read_settings(project.hosts[0].data, (), project.root).monitoring
    assert wanted is not None and wanted.node_exporter
    assert scraping_of(project, None) is not None


def test_what_it_served_is_drift() -> None:
    assert [(found.what, found.service) for found in drift_of(LEFT, (), {})] == [
        (LEFT_OVER, "chat"),
        (LEFT_OVER, "old"),
    ]


@pytest.mark.parametrize(("remove", "gone"), [(False, []), (True, [("chat", "old")])])
def test_its_last_service_goes_only_where_that_is_asked_for(
    remove: bool, gone: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(roles.site, "removed", called.append)
    monkeypatch.setattr(roles.site, "no_gateway", lambda: None)
    monkeypatch.setattr(roles.site, "exporters", lambda probe, settings, alone: None)
    tokens: list[str] = []
    monkeypatch.setattr(roles.site, "no_hub_token", lambda: tokens.append("gone"))
    roles.site.provision((), LEFT, HostSettings(remove=remove))
    assert called == gone
    assert tokens == ["gone"]
