"""Hosts that serve together: how a group is cut into sets, and what cannot be one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rigup.cli.main import main
from rigup.errors import InputError
from rigup.plan import Plan
from rigup.project.inventory import load_project
from rigup.project.node_groups import check_whole_groups, node_groups
from rigup.project.planning import plan_project

PAIR = {
    "rig": {"gpus": [], "hosts_per_service": 2},
    "services": {"chat": {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp", "context": 1024}},
}
ALONE = {**PAIR, "rig": {"gpus": []}}


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a fleet: an inventory as text, and group_data by group."""
    monkeypatch.chdir(tmp_path)

    def write(inventory: str, **groups: dict[str, Any]) -> None:
        for folder in ("inventories", "group_data"):
            (tmp_path / folder).mkdir()
        (tmp_path / "inventories/lan.py").write_text(inventory)
        for name, data in groups.items():
            text = "".join(f"{key} = {value!r}\n" for key, value in data.items())
            (tmp_path / f"group_data/{name}.py").write_text(text)

    return write


def planned(limit: str | None = None) -> tuple[Plan, ...]:
    return plan_project(load_project(None, limit))


def test_a_group_is_cut_into_sets_in_the_inventory_s_order(fleet: Any) -> None:
    fleet('pair = ["d", "a", "c", "b"]\nbox = ["x"]', pair=PAIR, box=ALONE)
    project = load_project(None)
    names = [[host.name for host in members] for members in node_groups(project.everyone)]
    assert names == [
        ["d", "a"],
        ["c", "b"],
        ["x"],
    ]
    plans = planned()
    assert [(plan.host, plan.rank, [node.host for node in plan.nodes]) for plan in plans] == [
        ("d", 0, ["d", "a"]),
        ("a", 1, ["d", "a"]),
        ("c", 0, ["c", "b"]),
        ("b", 1, ["c", "b"]),
        ("x", 0, []),
    ]
    assert [plan.command[0] for plan in plans[:4]] == ["bin/llama-server", "bin/ggml-rpc-server"] * 2


def test_every_service_of_a_group_is_one_over_its_hosts(fleet: Any) -> None:
    second = {**PAIR["services"]["chat"], "port": 8001}
    fleet('pair = ["a", "b"]', pair={**PAIR, "services": {**PAIR["services"], "more": second}})
    assert [(plan.host, plan.service.name, plan.rank) for plan in planned()] == [
        ("a", "chat", 0),
        ("a", "more", 0),
        ("b", "chat", 1),
        ("b", "more", 1),
    ]


def test_a_limit_plans_the_whole_set_and_shows_its_part(fleet: Any) -> None:
    fleet('pair = ["a", "b", "c", "d"]', pair=PAIR)
    (plan,) = planned("d")
    assert (plan.host, plan.rank, [node.host for node in plan.nodes]) == ("d", 1, ["c", "d"])


def test_hosts_that_are_left_over_are_named(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fleet('trio = ["a", "b", "c"]\nbox = ["x"]', trio=PAIR, box=ALONE)
    assert main(["plan"]) == 1
    plans = planned()
    assert [(plan.host, plan.verdict) for plan in plans] == [
        ("a", "refused"),
        ("b", "refused"),
        ("c", "refused"),
        ("x", "ok"),
    ]
    assert {plan.refusals for plan in plans[:3]} == {plans[0].refusals}
    (finding,) = plans[0].refusals
    assert (finding.rule, finding.message, finding.hint, finding.source) == (
        "hosts-per-service",
        "3 hosts are not a multiple of hosts_per_service 2: c is left over",
        "add hosts to the group, or move the remaining ones to a group of their own",
        "docs/multi-node.md",
    )


def test_unequal_hosts_cannot_serve_together(fleet: Any) -> None:
    other = {"gpus": [], "hosts_per_service": 2, "host_memory_gib": 16}
    fleet(f'pair = ["a", ("b", {{"rig": {other!r}}}), "c", "d"]', pair=PAIR)
    plans = planned()
    assert [plan.verdict for plan in plans] == ["refused", "refused", "ok", "ok"]
    (finding,) = plans[1].refusals
    assert (finding.rule, finding.message, finding.hint) == (
        "unequal-hosts",
        "a and b serve together but have different rig",
        "give both the same rig, or move b to another group",
    )


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("b", "--limit: b is one of the hosts of a service that spans a, b, c"),
        ("a,c", "--limit: a, c are not all the hosts of a service that spans a, b, c"),
    ],
)
def test_a_part_of_a_service_cannot_be_worked_on(fleet: Any, limit: str, message: str) -> None:
    fleet('trio = ["a", "b", "c"]', trio={**PAIR, "rig": {"gpus": [], "hosts_per_service": 3}})
    with pytest.raises(InputError) as caught:
        check_whole_groups(load_project(None, limit))
    assert (caught.value.message, caught.value.hint) == (message, "name all of them: --limit a,b,c")
    check_whole_groups(load_project(None, "a,b,c"))
    check_whole_groups(load_project(None, "trio"))


def test_nonsense_for_a_number_is_said_by_the_rig(fleet: Any) -> None:
    fleet('pair = ["a", "b"]', pair={**PAIR, "rig": {"gpus": [], "hosts_per_service": "two"}})
    with pytest.raises(InputError) as caught:
        planned()
    assert caught.value.message.startswith("group_data/pair.py: rig.hosts_per_service: ")
    assert '"two"' in caught.value.message
