"""From an examination to what the page says: states, versions, memory, releases and stored benchmarks of each host."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent.pool
import pytest

from rigup import __version__, layout
from rigup.bench.store import store
from rigup.cli.page.collect import fleet_content, memory_of, page_of
from rigup.cli.page.content import HostContent
from rigup.commands.swap_groups import as_groups, taking_turns
from rigup.errors import HostFailed, Unreachable
from rigup.facts.probe import ProbedGpu
from rigup.operations.service.history import RetainedRelease
from rigup.plan import Plan
from rigup.project.inventory import HostEntry, Project
from rigup.run import history as history_asking
from rigup.run.drift import Drift, drift_of
from rigup.run.history import ReleaseHistory, histories_of
from rigup.run.result import HostResult
from tests.unit.cli.page.page_content import result
from tests.unit.cli.page.page_reader import read
from tests.unit.cli.test_status import having, manifest, planned, result_of, row, set_states
from tests.unit.planner.asking import side_by_side
from tests.unit.run.test_drift import LEFT_OVER

PINNED = having("580.178.04")
KEY = "the-key-of-the-service"


def inspected(root: Path, *results: HostResult, plan: Plan | None = None) -> Any:
    """What an examination knows of these hosts, each with the plan of `chat` (or this one)."""
    plan = plan or planned()
    wanted = {"chat": manifest(plan)}
    entries = tuple(HostEntry(one.host, "quad", {"api_key": "said-in-the-inventory"}) for one in results)
    return SimpleNamespace(
        context=SimpleNamespace(
            project=Project(root, root / "inventories/homelab.py", entries),
            connections=SimpleNamespace(sudo_password="of-the-admin"),
        ),
        results={one.host: one for one in results},
        plans={one.host: (plan,) for one in results},
        drift={one.host: drift_of(one.probe, (plan,), wanted) if one.probe else () for one in results},
    )


def rows_of(run: Any) -> list[dict[str, Any]]:
    rows = [row(found, run.plans[name][0]) for name, found in run.results.items()]
    set_states(run.results.values(), rows)
    return rows


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, ReleaseHistory]:
    """What hosts answer when they are asked for their history."""
    said: dict[str, ReleaseHistory] = {}
    monkeypatch.setattr("rigup.cli.page.collect.histories_of", lambda run: said)
    return said


def differing(host: HostContent) -> list[str]:
    """What has drifted: the host's own, then its services'."""
    return [one.what for part in (host, *host.services) for one in part.drift]


def test_a_host_in_order(tmp_path: Path, asked: dict[str, ReleaseHistory]) -> None:
    plan = planned()
    first = {**manifest(plan), "environment": {"HF_TOKEN": "a-token-by-name"}}
    releases = (
        RetainedRelease("chat", 1, 0, False, True, first),
        RetainedRelease("chat", 2, 60, True, True, manifest(plan)),
    )
    asked["gpu1"] = ReleaseHistory({"chat": releases}, (KEY,))
    store(tmp_path, result("2026-11-21T08:00:00Z") | {"host": "gpu1"})
    (tmp_path / "rigup.lock").write_text("schema = 1\n")
    run = inspected(tmp_path, result_of(plan, PINNED))
    content, secrets = fleet_content(run, rows_of(run), "gpu1")

    assert (content.origin.fleet, content.origin.rigup, content.origin.limit) == ("homelab", __version__, "gpu1")
    assert len(content.origin.lock) == 64
    (host,) = content.hosts
    assert (host.state, host.group, differing(host)) == ("in order", "quad", [])
    assert ("GPUs", "1 × RTX 3090") in host.facts  # noqa: RUF001
    (service,) = host.services
    assert (service.serves, service.engine) == ("SmolLM2-135M-Instruct-GGUF Q4_1", "llama.cpp b11434")
    assert all(not one.differs for one in host.versions)
    assert {one.what for one in host.versions} >= {"driver", "build", "checkpoint"}
    assert [one.number for one in service.releases or ()] == [2, 1]
    assert (service.releases or ())[0].made == "1970-01-01 00:01:00 UTC"
    assert "HF_TOKEN" in (service.releases or ())[0].changed[0]
    assert [one["began"] for one in service.results] == ["2026-11-21T08:00:00Z"]
    assert set(secrets) == {KEY, "a-token-by-name"}


def test_services_that_take_turns_are_one_with_the_checkpoint_of_each(
    tmp_path: Path, asked: dict[str, ReleaseHistory]
) -> None:
    turns = {"model": "SmolLM2-135M-Instruct", "swap": True}
    services = {"chat": turns, "coder": {**turns, "served_name": "c:8b", "context": 512}}
    (plan,) = as_groups(taking_turns(side_by_side(services, [], 64)))
    found = result_of(plan, PINNED)
    found.answers = [found.answers[0]._replace(model="c:8b")]
    run = inspected(tmp_path, found, plan=plan)
    content, _ = fleet_content(run, rows_of(run), None)
    (host,) = content.hosts
    (service,) = host.services
    assert (service.name, service.serves) == ("chat", "SmolLM2-135M-Instruct-GGUF Q4_1")
    assert ("takes turns", "chat, coder; loaded: c:8b") in service.facts
    versions = {one.what: one for one in host.versions}
    assert {"build", "chat: checkpoint", "coder: checkpoint"} <= versions.keys()
    assert not versions["coder: checkpoint"].differs


def test_the_page_has_none_of_the_secrets(tmp_path: Path, asked: dict[str, ReleaseHistory]) -> None:
    known = [KEY, "a-token-by-name", "said-in-the-inventory", "of-the-admin"]
    changed = {"environment": {"HF_TOKEN": "a-token-by-name"}, "command": ["x", *known]}
    kept = (RetainedRelease("chat", 1, 0, False, True, {}), RetainedRelease("chat", 2, 60, True, True, changed))
    asked["gpu1"] = ReleaseHistory({"chat": kept}, (KEY,))
    run = inspected(tmp_path, result_of(planned(), PINNED))
    run.results["gpu1"].errors.append(HostFailed(" ".join(known), " ".join(known)))
    page = page_of(run, rows_of(run), None)
    assert [secret for secret in known if secret in page] == []
    assert "[redacted]" in page and "Release 2" in page


def test_each_state_of_a_host(tmp_path: Path, asked: dict[str, ReleaseHistory]) -> None:
    good = result_of(planned(), PINNED)
    drifted = replace(result_of(planned(), having("590.48.01")), host="gpu2")
    silent = replace(result_of(planned(), PINNED), host="gpu3", answers=[])
    silent.fail("failed", HostFailed("gpu3: chat: no answer"))
    away = HostResult("gpu4")
    away.fail("unreachable", Unreachable("gpu4: connection refused", "is it on?"))
    stopped = HostResult("gpu5")
    stopped.fail("cancelled")
    run = inspected(tmp_path, good, drifted, silent, away, stopped)
    content, _ = fleet_content(run, rows_of(run), None)
    assert [host.state for host in content.hosts] == ["in order", "drifted", "no answer", "unreachable", "failed"]
    assert [host.name for host in content.worst_first] == ["gpu4", "gpu5", "gpu3", "gpu2", "gpu1"]
    assert differing(content.hosts[1]) == ["driver"]
    (driver,) = [one for one in content.hosts[1].versions if one.what == "driver"]
    assert (driver.found, driver.wanted, driver.differs) == ("590.48.01", "580.178.04", True)
    assert [error.message for error in content.hosts[3].errors] == ["gpu4: connection refused"]
    assert content.hosts[3].services[0].releases is None
    page = page_of(run, rows_of(run), None)
    assert "gpu4: connection refused" in page and "is it on?" in page


@pytest.mark.parametrize("standing", ["no answer: waits for gpu2 (chat: unit failed)", "no answer of gpu2"])
def test_a_service_over_hosts_that_does_not_answer(
    tmp_path: Path, asked: dict[str, ReleaseHistory], standing: str
) -> None:
    silent = replace(result_of(planned(), PINNED), answers=[], worker_health={"chat": standing})
    silent.fail("failed", HostFailed(f"gpu1: chat: {standing}"))
    run = inspected(tmp_path, silent)
    content, _ = fleet_content(run, rows_of(run), None)
    assert [host.state for host in content.hosts] == ["no answer"]
    (tag,) = (one for h4 in read(page_of(run, rows_of(run), None)).all("h4") for one in h4.of_class("tag"))
    assert (tag.attributes["class"], tag.own) == ("tag bad", [standing])


def test_a_service_that_left_the_inventory_is_shown_as_such(tmp_path: Path, asked: dict[str, ReleaseHistory]) -> None:
    run = inspected(tmp_path, result_of(planned(), PINNED))
    run.drift["gpu1"] = (Drift(LEFT_OVER, "rigup-old.service is active", "old"),)
    left = {"host": "gpu1", "service": "old", "unit": "active", "health": "not asked", "drift": LEFT_OVER}
    content, _ = fleet_content(run, [*rows_of(run), left], None)
    old = content.hosts[0].services[1]
    assert (old.name, old.planned, old.results, old.memory) == ("old", False, (), ())
    assert LEFT_OVER in page_of(run, [*rows_of(run), left], None)


def test_memory_is_of_the_row_where_it_has_it_and_else_of_the_card() -> None:
    plan = planned()
    (gpu,) = plan.memory
    (use,) = memory_of(plan, {"gpus": [{"index": 0, "memory_used_mib": 5000}]})
    assert (use.planned, use.measured) == (gpu.weights_mib + gpu.kv_cache_mib + gpu.overhead_mib, 5000)
    assert (use.weights, use.capacity, use.name) == (gpu.weights_mib, gpu.capacity_mib, "GeForce RTX 3090")
    (use,) = memory_of(plan, {"gpus": [{"index": 0, "memory_used_mib": 5000, "memory_reserved_mib": 300}]})
    assert use.measured == 5300
    (use,) = memory_of(plan, {"gpus": [{"index": 0, "memory_used_mib": None}]})
    assert use.measured is None
    said = {"gpu": 0, "planned_mib": use.planned, "measured_mib": 6000, "capacity_mib": 24000}
    (use,) = memory_of(plan, {"gpus": [{"index": 0, "memory_used_mib": 5000}], "memory": [said]})
    assert (use.measured, use.capacity, use.weights) == (6000, 24000, gpu.weights_mib)
    (use,) = memory_of(plan, {"memory": [said | {"planned_mib": 1}]})
    assert (use.planned, use.weights, use.parts) == (1, None, (("weights", "planned", 1),))


def test_a_host_is_asked_once_for_its_releases_and_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script itself, by this machine's sh, on folders as a host has them."""
    for number, current in ((1, False), (2, True)):
        folder = tmp_path / f"services/chat/releases/{number}"
        folder.mkdir(parents=True)
        (folder / "release.json").write_text(json.dumps({"build": f"b{number}"}))
        if current:
            (tmp_path / "services/chat/current").symlink_to(folder)
            (folder / "answered").touch()
    (tmp_path / "services/chat/api-key").write_text(f"{KEY}\n")
    questions = []

    def script(host: Any, text: str, *arguments: str) -> str:
        questions.append((host.name, arguments[0]))
        if host.name == "gpu2":
            raise HostFailed("gpu2: no")
        words = ("sh", "-c", "set -eu\n" + text, "rigup", str(tmp_path), *arguments[1:])
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    monkeypatch.setattr(history_asking.remote, "script", script)
    hosts = [SimpleNamespace(name=f"gpu{n}", connected=n < 3) for n in (1, 2, 3)]
    run: Any = SimpleNamespace(state=SimpleNamespace(inventory=hosts, pool=gevent.pool.Pool()))
    found = histories_of(run)
    assert questions == [("gpu1", layout.CONFIGURATION), ("gpu2", layout.CONFIGURATION)]
    assert list(found) == ["gpu1"]
    assert [(one.number, one.current, one.answered) for one in found["gpu1"].kept["chat"]] == [
        (1, False, False),
        (2, True, True),
    ]
    assert found["gpu1"].secrets == (KEY,)
    assert KEY not in repr(found)


def test_what_a_card_reports_is_in_the_facts(tmp_path: Path, asked: dict[str, ReleaseHistory]) -> None:
    good = result_of(planned(), PINNED)
    assert good.probe is not None
    hot = ProbedGpu("NVIDIA GeForce RTX 3090", 1, 24576, 91, 0, throttled=("too hot",))
    run = inspected(tmp_path, replace(good, probe=replace(good.probe, gpus=(hot,))))
    content, _ = fleet_content(run, rows_of(run), None)
    assert {("hottest GPU", "91 °C"), ("throttled", "GPU 0: too hot")} <= set(content.hosts[0].facts)
