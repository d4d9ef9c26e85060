"""Two hosts, one of which says what cannot be: every verb shows the honest one right, and the other failed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rigup import layout
from rigup.cli import main, releases
from rigup.cli.sessions import session as hosts
from rigup.connection import connections, handshake
from rigup.facts.bounds import Unreadable
from rigup.operations.service.answer import Answer
from rigup.run import runner
from rigup.run.inspection import Inspection
from rigup.run.rollback import RollbackRun
from rigup.run.runner import Run
from tests.hostile import is_harmless
from tests.unit.connection.local_connector import LocalConnector
from tests.unit.preflight.test_checks import PLAN

MANIFEST = {"build": "llama.cpp-b1", "checkpoint": None, "command": ["serve"], "environment": {}}
GPU = {"gpu": 0, "name": "NVIDIA GeForce RTX 3090", "uuid": "GPU-1"}
PATH = "services/chat/current/release.json"
# what the host says of NVML, what its current release.json holds, and how it is told
DAMAGES = {
    "release": (GPU, "[1]", f"{PATH}: expected an object"),
    "nested": (GPU, "[" * 50_000, f"{PATH}: nested deeper than 24 levels"),
    "command": (GPU, '{"command": ["a", [1]]}', f"{PATH}: command.1: expected a string, found a list"),
    "nvml": (GPU | {"name": ["\x1b[2J"]}, json.dumps(MANIFEST), "name: expected a string, found a list"),
    "memory": (GPU | {"memory_used_mib": "much"}, json.dumps(MANIFEST), "memory_used_mib: expected a whole number"),
}
OF_PROBE = ("nvml", "memory")


class Fleet(LocalConnector):
    """Each host has a folder; `now` is the one whose turn it is."""

    root = Path()

    def _run(self, command: Any, **arguments: Any) -> Any:
        new = self.root / "new"
        new.unlink(missing_ok=True)
        new.symlink_to(self.host.name)
        os.replace(new, self.root / "now")
        return super()._run(command, **arguments)


@pytest.fixture(params=DAMAGES)
def damage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def told(
    damage: str, local_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Has the verbs talk to gpu1, which is damaged, and gpu2, which is not; returns what is said of gpu1."""
    nvml, manifest, problem = DAMAGES[damage]
    for name, said, text in (("gpu1", nvml, manifest), ("gpu2", GPU, json.dumps(MANIFEST))):
        for number, of in (("1", MANIFEST), ("2", None)):
            folder = tmp_path / name / "etc/services/chat/releases" / number
            folder.mkdir(parents=True)
            (folder / "release.json").write_text(json.dumps(of) if of else text)
            (folder / "answered").touch()
        (tmp_path / name / "etc/services/chat/current").symlink_to("releases/2")
        lines = ["os debian-12", "init systemd", "arch x86_64", "clock 1800000000", "memory_kib 131072000"]
        lines += [f"release chat {text}", "service chat 2", "build llama.cpp-b1", f"nvml {said!r}"]
        lines += ["systemd Id=rigup-chat.service", "systemd ActiveState=active", "systemd"]
        (tmp_path / name / "probe").write_text("\n".join(lines) + "\n")
    opened = local_run({"gpu1": lambda _: None, "gpu2": lambda _: None})
    monkeypatch.setattr(Fleet, "root", tmp_path)
    monkeypatch.setattr(connections, "RigupSSHConnector", Fleet)
    monkeypatch.setattr(layout, "CONFIGURATION", f"{tmp_path}/now/etc")
    monkeypatch.setattr(
        handshake, "probe_definitions", lambda: f"probe() {{ cat {tmp_path}/now/probe; }}\nnvidia() {{ :; }}"
    )
    monkeypatch.setattr(runner, "ask_service", lambda host, plan, **_: Answer(host.name, "chat", "hello", 1, 0.5, 80.0))
    monkeypatch.setattr(Inspection, "_manifest", lambda *_: MANIFEST)

    def made(kind: type[Run], plans: tuple[Any, ...]) -> Run:
        project = opened.context.project
        contact = connections.Connections(project.data_by_host, None)
        return kind(project, dict.fromkeys(opened.results, plans), opened.context.settings, contact)

    def open_run(_: Any, run_class: Callable[[], type[Run]]) -> tuple[Any, Run]:
        kind = run_class()
        return opened.context.project, made(kind, (PLAN,) if kind is not Run else ())

    monkeypatch.setattr(hosts, "open_run", open_run)
    monkeypatch.setattr(releases, "open_rollback_run", lambda _: made(RollbackRun, ()))
    return lambda: problem


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Exit code 1 and no traceback, of whatever verb; as JSON where that was asked for, else all that was shown."""
    assert main.main(words) == 1
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err and is_harmless(said.out + said.err)
    return json.loads(said.out) if "--json" in words else said.out + said.err


def errors(of: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {host["host"]: [error["message"] for error in host["errors"]] for host in of}


def test_status(told: Callable[[], str], damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "status", "--json")
    found = errors(said["hosts"])
    assert found["gpu2"] == [] and len(found["gpu1"]) == 1 and told() in found["gpu1"][0]
    assert found["gpu1"][0].startswith("gpu1: ") and said["hosts"][0]["state"] == "failed"
    bad, good = said["services"]
    assert (good["health"], good["release"], good["build"]) == ("answers", "2", "llama.cpp-b1")
    if damage not in OF_PROBE:
        assert (bad["health"], bad["release"], bad["build"], bad["drift"]) == ("answers", "2", None, "unknown")
    text = run(capsys, "status")
    assert told() in " ".join(text.split()) and "gpu2" in text and "hint: " in text


def test_diff(told: Callable[[], str], capsys: pytest.CaptureFixture[str]) -> None:
    found = errors(run(capsys, "diff", "--json")["hosts"])
    assert found["gpu2"] == [] and told() in found["gpu1"][0]
    assert told() in " ".join(run(capsys, "diff").split())


def test_releases(told: Callable[[], str], damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "releases", "--json")
    assert [release["number"] for release in said["hosts"]["gpu2"]["chat"]] == [1, 2]
    assert {error["host"] for error in said["errors"]} == {"gpu1"}
    problem = told().removeprefix(PATH)
    assert problem in said["errors"][0]["message"]
    if damage not in OF_PROBE:
        assert [release["answered"] for release in said["hosts"]["gpu1"]["chat"]] == [True, False]
    assert problem in " ".join(run(capsys, "releases").split())


def test_page(told: Callable[[], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    run(capsys, "status", "--html", str(page))
    text = page.read_text()
    assert told() in text and "gpu2" in text and is_harmless(text)


@pytest.mark.parametrize("damage", OF_PROBE, indirect=True)
def test_apply(told: Callable[[], str], capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "apply", "--yes", "--json")
    found = errors(said["hosts"])
    assert [host["state"] for host in said["hosts"]] == ["failed", "unchanged"]
    assert found["gpu2"] == [] and told() in found["gpu1"][0]
    assert told() in " ".join(run(capsys, "apply", "--yes").split())


def test_a_fact_of_one_host_that_cannot_be_read_is_its_failure(
    local_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: Path) -> None:
        raise Unreadable("its list of interfaces: expected a list, found a number")

    with local_run({"gpu1": unreadable, "gpu2": lambda _: None}) as found:
        found.connect(take_lease=False)
        found.compare()
        states = {name: result.state for name, result in found.results.items()}
    assert states == {"gpu1": "failed", "gpu2": "pending"}
    (error,) = found.results["gpu1"].errors
    assert error.message == "gpu1: its list of interfaces: expected a list, found a number" and error.hint
