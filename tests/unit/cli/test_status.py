"""`rigup status` of hosts that were probed by hand: what it shows of the driver, and what counts as drift."""

from __future__ import annotations

import io
from argparse import Namespace
from typing import Any

import pytest
from rich.console import Console

from rigup.catalogue.driver_versions import locked_driver
from rigup.cli.main import main
from rigup.cli.output.status_rows import left_over_row, set_states, up_seconds
from rigup.cli.output.status_rows import row as row_with
from rigup.cli.sessions import session
from rigup.cli.status import status_as_json, table
from rigup.errors import InputError, Unreachable
from rigup.facts.probe import Nvidia, Probe, ProbedGpu, UnitState
from rigup.lock import Lock
from rigup.operations.builds.source import name_of
from rigup.operations.service.answer import Answer
from rigup.plan import DriverPlan, Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service
from rigup.run.drift import drift_of, driver_differences
from rigup.run.result import HostResult, exit_code
from rigup.systemd.release import release_of
from tests.nodes import unbound
from tests.unit.planner.asking import FILE, catalogue
from tests.unit.run.test_drift import LEFT_OVER

LOCK = Lock(driver=locked_driver("580.178.04"))
PLANNED = DriverPlan(version="580.178.04", branch="580", flavour="open")
SMOL = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}


def planned(gpus: object = "RTX 3090", lock: Lock = LOCK) -> Plan:
    rig = read_rig({"gpus": gpus}, FILE, catalogue())
    (service,) = read_services({"chat": SMOL}, FILE, rig)
    return plan_service("gpu1", "group", rig, service, catalogue(), lock)


def result_of(plan: Plan, nvidia: Nvidia) -> HostResult:
    """A host on which the plan's release runs and answers, with this driver."""
    release = manifest(plan)
    gpus = [ProbedGpu(gpu.name, 6144, gpu.memory_mib, 61 + index, index) for index, gpu in enumerate(plan.rig.gpus)]
    probe = Probe(
        os="debian-12",
        clock=1_800_000_000,
        gpus=tuple(gpus),
        builds=(release["build"],),
        architecture="x86_64",
        nvidia=nvidia,
        current={"chat": "1"},
        releases={"chat": release},
        units={"chat": UnitState(active="active", since="Fri 2027-01-15 06:58:20 UTC")},
    )
    return HostResult("gpu1", probe=probe, answers=[Answer("gpu1", "chat", "hello", 1, 0.5, 80.0)])


def manifest(plan: Plan) -> dict[str, Any]:
    assert plan.build is not None
    return release_of(unbound(plan), name_of(plan.build, "x86_64", "debian-12")).manifest


def row(result: HostResult, plan: Plan) -> dict[str, Any]:
    found = drift_of(result.probe, (plan,), {"chat": manifest(plan)}) if result.probe else ()
    return row_with(result, plan, found)


def asked(plan: Plan, nvidia: Nvidia) -> tuple[dict[str, Any], int]:
    """The row, and the exit code."""
    result = result_of(plan, nvidia)
    found = row(result, plan)
    set_states([result], [found])
    return found, exit_code([result])


def having(loaded: str, installed: str | None = None) -> Nvidia:
    return Nvidia(loaded=loaded, installed=loaded if installed is None else installed)


@pytest.mark.parametrize(
    ("nvidia", "words"),
    [
        (having("590.48.01"), "590.48.01, lock 580.178.04"),
        (having(""), "none, lock 580.178.04"),
        (having("580.178.04", "590.48.01"), "580.178.04, 590.48.01 installed"),
        (having("590.48.01", "580.178.04"), "590.48.01, 580.178.04 installed, lock 580.178.04"),
    ],
)
def test_a_driver_that_is_not_the_locks_has_drifted(nvidia: Nvidia, words: str) -> None:
    found, code = asked(planned(), nvidia)
    assert (found["driver"], found["drift"], code) == (words, "driver", 1)


def test_the_locked_driver_is_in_sync() -> None:
    found, code = asked(planned(), having("580.178.04"))
    assert (found["driver"], found["drift"], found["health"], code) == ("580.178.04", "none", "answers", 0)


def test_a_driver_that_rigup_leaves_alone_is_only_told() -> None:
    found, code = asked(planned(lock=Lock()), having("595.71.05"))
    assert (found["driver"], found["drift"], code) == ("595.71.05", "none", 0)


def test_a_host_without_gpus_has_none() -> None:
    found, code = asked(planned([]), having(""))
    assert (found["driver"], found["drift"], code) == (None, "none", 0)
    assert driver_differences(having(""), PLANNED) == ("none", "lock 580.178.04")


def test_the_driver_is_named_beside_what_else_drifted() -> None:
    plan = planned()
    result = result_of(plan, having("590.48.01"))
    assert result.probe is not None
    result.probe.releases["chat"]["command"] = ["bin/llama-server"]
    assert row(result, plan)["drift"] == "command, driver"
    result.probe.releases.clear()
    assert row(result, plan)["drift"] == "not applied, driver"


def test_a_host_that_failed_stays_failed() -> None:
    result = HostResult("gpu1", state="unreachable")
    found = row(result, planned())
    set_states([result], [found])
    assert (found["health"], found["drift"], result.state) == ("unreachable", "unknown", "unreachable")


def shown(plan: Plan, nvidia: Nvidia) -> str:
    file = io.StringIO()
    Console(file=file, width=200).print(table([asked(plan, nvidia)[0]]))
    return file.getvalue()


def test_the_table_has_a_column_for_it_where_there_is_one() -> None:
    text = shown(planned(), having("590.48.01"))
    assert "driver" in text.splitlines()[0] and "590.48.01, lock 580.178.04" in text.splitlines()[1]
    assert "driver" not in shown(planned([]), having(""))


def test_gpus_have_their_memory_and_the_hottest_temperature() -> None:
    text = shown(planned(), having("580.178.04"))
    assert "6.0 of 24.0 GiB" in text and "61 °C" in text
    found, _ = asked(planned(), having("580.178.04"))
    assert (found["gpu_memory_used_mib"], found["gpu_memory_mib"], found["gpu_temperature_c"]) == (6144, 24576, 61)
    assert "gpu memory" not in shown(planned([]), having(""))


def test_how_long_a_service_has_been_up() -> None:
    found, _ = asked(planned([]), having(""))
    assert found["up_seconds"] == 3700
    assert "1h 1m" in shown(planned([]), having(""))
    assert up_seconds("", 5) is None and up_seconds("Fri 2027-01-15 06:58:20 CET", 5) is None


@pytest.mark.parametrize(("restarts", "words"), [(0, "active "), (1, "active, 1 restart "), (9, "active, 9 restarts ")])
def test_how_often_a_service_was_restarted_is_in_its_line(restarts: int, words: str) -> None:
    file = io.StringIO()
    Console(file=file, width=200).print(table([asked(planned([]), having(""))[0] | {"restarts": restarts}]))
    assert words in file.getvalue()


@pytest.mark.parametrize(("active", "health"), [("inactive", "stopped"), ("failed", "no answer")])
def test_a_stopped_service_is_stopped(active: str, health: str) -> None:
    plan = planned([])
    result = result_of(plan, having(""))
    assert result.probe is not None
    result.answers.clear()
    result.probe.units["chat"] = UnitState(active=active)
    assert (row(result, plan)["health"], row(result, plan)["drift"]) == (health, "state")


def test_a_service_that_no_plan_names_has_a_line() -> None:
    plan = planned([])
    result = result_of(plan, having(""))
    assert result.probe is not None
    result.probe.current["old"], result.probe.units["old"] = "3", UnitState(active="active")
    (drift,) = drift_of(result.probe, (plan,), {"chat": manifest(plan)})
    found = left_over_row(result, drift)
    assert (found["service"], found["unit"], found["drift"]) == ("old", "active", LEFT_OVER)
    set_states([result], [found])
    assert exit_code([result]) == 1


def test_scripts_hear_why_a_host_says_nothing() -> None:
    gone, fine = HostResult("gpu1"), HostResult("gpu2", "unchanged")
    gone.fail("unreachable", Unreachable("gpu1: gone", "is it on?"))
    rows = [row(gone, planned())]
    assert status_as_json(rows, [gone, fine], []) == {
        "schema": 1,
        "hosts": [
            {
                "host": "gpu1",
                "state": "unreachable",
                "errors": [{"message": "gpu1: gone", "hint": "is it on?"}],
            },
            {"host": "gpu2", "state": "unchanged", "errors": []},
        ],
        "services": rows,
        "gateways": [],
    }


INVENTORY = "inventories/home.py"


@pytest.mark.parametrize(
    ("words", "inventory", "watch"),
    [
        (["--watch", INVENTORY], INVENTORY, 10),
        ([INVENTORY, "--watch"], INVENTORY, 10),
        (["--watch", "5", INVENTORY], INVENTORY, 5),
        ([INVENTORY, "--watch", "5"], INVENTORY, 5),
        (["--watch"], None, 10),
        (["--watch", "0"], None, 0.2),
        ([INVENTORY], INVENTORY, None),
    ],
    ids=str,
)
def test_an_inventory_may_stand_before_or_after_watch(
    words: list[str], inventory: str | None, watch: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str | None, float | None]] = []

    def open_inspection(args: Namespace, *_: object, **__: object) -> None:
        asked.append((args.inventory, args.watch))
        raise InputError("far enough")

    monkeypatch.setattr(session, "open_inspection", open_inspection)
    assert main(["status", *words]) == 2
    assert asked == [(inventory, watch)]


def test_what_is_not_a_number_of_seconds_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", INVENTORY, "--watch", "5s"]) == 2
    assert (
        capsys.readouterr().err
        == "rigup: --watch: '5s' is not a number of seconds\nhint: pass a number, such as --watch 5\n"
    )
    for text in ("nan", "inf", "-1"):
        assert main(["status", "--watch", text]) == 2
        assert f"status: --watch: {text!r} " in capsys.readouterr().err
