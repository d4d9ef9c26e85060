"""Which cards the services of a host get: as declared at first, the same ones for as long as they are there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.facts.gpus import PciGpu
from rigup.facts.probe import NumaNode, Nvidia, Probe, ProbedGpu
from rigup.node import Node
from rigup.operations.service.gpu_binding import bind, bound_nodes, needs_driver_to_bind, unknown_gpu_uuids
from rigup.plan import BoundPlan, Plan
from rigup.rig import Rig
from rigup.service import Service
from rigup.systemd.release import release_of
from tests.unit.planner.asking import side_by_side

SMALL = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}
CARD = "NVIDIA GeForce RTX 3090"


def plans(services: dict[str, dict[str, Any]], gpus: object = "4x RTX 3090") -> tuple[Plan, ...]:
    described = {name: {**SMALL, "port": 8000 + n, **said} for n, (name, said) in enumerate(services.items())}
    return side_by_side(described, gpus, 64)


def host(*uuids: str, names: tuple[str, ...] = ()) -> Probe:
    cards = tuple(
        ProbedGpu((names or (CARD,) * len(uuids))[index], index=index, uuid=uuid) for index, uuid in enumerate(uuids)
    )
    return Probe(gpus=cards, nvidia=Nvidia(loaded="580.178.04"))


def applied(probe: Probe, made: tuple[BoundPlan, ...]) -> Probe:
    """The host once these plans were applied to it."""
    return replace(probe, releases={plan.service.name: release_of(plan, "build").manifest for plan in made})


def cards(made: tuple[BoundPlan, ...]) -> list[list[str]]:
    return [list(plan.gpu_uuids.values()) for plan in made]


PAIRS = {"a": {"gpus": [0, 1]}, "b": {"gpus": [2, 3]}}


def test_indices_are_the_cards_as_they_are_found() -> None:
    made = bind(plans(PAIRS), host("GPU-a", "GPU-b", "GPU-c", "GPU-d"))
    assert cards(made) == [["GPU-a", "GPU-b"], ["GPU-c", "GPU-d"]]
    assert made[1].environment["CUDA_VISIBLE_DEVICES"] == "GPU-c,GPU-d"
    assert release_of(made[1], "build").manifest["gpus"] == [[2, "GPU-c"], [3, "GPU-d"]]
    assert "CUDA_VISIBLE_DEVICES=GPU-c,GPU-d" in release_of(made[1], "build").unit


def losing(probe: Probe, index: int) -> Probe:
    """The same host, where one card no longer responds."""
    return replace(probe, gpus=tuple(replace(gpu, error="GPU is lost" * (gpu.index == index)) for gpu in probe.gpus))


def test_a_service_stays_with_a_card_that_is_lost_as_long_as_the_rig_has_it() -> None:
    probe = host("GPU-a", "GPU-b", "GPU-c", "GPU-d")
    made = bind(plans(PAIRS), probe)
    assert bind(plans(PAIRS), losing(applied(probe, made), 3)) == made


def test_a_plan_without_the_card_that_is_lost_names_the_others() -> None:
    lost = losing(host("GPU-a", "GPU-b", "GPU-c", "GPU-d"), 1)
    three = plans({"chat": {"gpus": [0, 1, 2]}}, "3x RTX 3090")
    (made,) = bind(three, lost)
    assert made.environment["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-c,GPU-d"
    assert bind(three, applied(lost, (made,))) == (made,)


def test_cards_that_were_renumbered_stay_with_their_services() -> None:
    probe = host("GPU-a", "GPU-b", "GPU-c", "GPU-d")
    made = bind(plans(PAIRS), probe)
    after = applied(host("GPU-c", "GPU-a", "GPU-d", "GPU-b"), made)
    assert bind(plans(PAIRS), after) == made


def test_a_service_that_joins_gets_cards_that_nobody_has() -> None:
    first = bind(plans({"a": {"gpus": [0, 1]}}), host("GPU-a", "GPU-b", "GPU-c", "GPU-d"))
    after = applied(host("GPU-c", "GPU-d", "GPU-a", "GPU-b"), first)
    assert cards(bind(plans(PAIRS), after)) == [["GPU-a", "GPU-b"], ["GPU-c", "GPU-d"]]


def test_other_indices_are_other_cards_and_a_card_that_is_gone_is_replaced() -> None:
    probe = host("GPU-a", "GPU-b", "GPU-c", "GPU-d")
    before = applied(probe, bind(plans({"a": {"gpus": [0, 1]}}), probe))
    assert cards(bind(plans({"a": {"gpus": [2, 3]}}), before)) == [["GPU-c", "GPU-d"]]
    exchanged = replace(before, gpus=host("GPU-a", "GPU-new", "GPU-c", "GPU-d").gpus)
    assert cards(bind(plans({"a": {"gpus": [0, 1]}}), exchanged)) == [["GPU-a", "GPU-new"]]


def test_the_order_of_a_mixed_rig_is_the_declared_one() -> None:
    mixed = ["RTX PRO 6000 Blackwell Workstation Edition", "RTX 3090"]
    (plan,) = plans({"a": {"model": "MiniMax-M2.5", "quant": "UD-IQ2_M", "context": 4096, "gpus": [0, 1]}}, mixed)
    found = host("GPU-small", "GPU-big", names=(CARD, plan.rig.gpus[0].name))
    assert cards(bind((plan,), found)) == [["GPU-big", "GPU-small"]]


def test_a_service_of_all_equal_cards_names_none_and_waits_for_none() -> None:
    (plan,) = plans({"a": {"model": "MiniMax-M2.5", "quant": "UD-IQ2_M", "context": 4096}})
    assert len(plan.memory) == 4
    made = bind((plan,), host("GPU-a", "GPU-b", "GPU-c", "GPU-d"))
    assert cards(made) == [[]] and made[0].environment == plan.environment
    assert not needs_driver_to_bind(made)


def test_without_a_driver_the_cards_are_told_later_unless_a_release_has_them() -> None:
    assert needs_driver_to_bind(bind(plans(PAIRS), Probe()))
    made = bind(plans(PAIRS), host("GPU-a", "GPU-b", "GPU-c", "GPU-d"))
    assert bind(plans(PAIRS), applied(Probe(), made)) == made


def test_uuids_are_taken_as_they_are() -> None:
    named = {"a": {"gpus": ["GPU-d", "GPU-b"]}, "b": {"gpus": [0, 1]}}
    probe = host("GPU-a", "GPU-b", "GPU-c", "GPU-d")
    made = bind(plans(named), probe)
    assert cards(made) == [["GPU-d", "GPU-b"], ["GPU-a", "GPU-c"]]
    assert list(unknown_gpu_uuids(plans(named), probe)) == []
    ((plan, uuid),) = unknown_gpu_uuids(plans({"a": {"gpus": ["GPU-x"]}}), probe)
    assert (plan.service.name, uuid) == ("a", "GPU-x")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_that_counts_looks_its_cards_up_when_it_starts(engine: str) -> None:
    services = {"a": {"model": "MiniMax-M2.5", "engine": engine, "gpus": [2, 3], "context": 4096}}
    (plan,) = plans(services, "4x RTX PRO 6000 Blackwell Workstation Edition")
    assert plan.verdict == "ok", plan.refusals
    name = plan.rig.gpus[0].name
    (made,) = bind((plan,), host("GPU-a", "GPU-b", "GPU-c", "GPU-d", names=(name,) * 4))
    text = release_of(made, "build").unit
    assert "ExecStart=/bin/sh -c " in text and "nvidia-smi --id=" in text
    assert "nvidia-smi" not in release_of(*bind((plan,), Probe()), "build").unit


def across(rank: int, *command: str) -> Plan:
    nodes = (Node(host="gpu1"), Node(host="gpu2"))
    return Plan(
        host=nodes[rank].host,
        group="pair",
        verdict="ok",
        rig=Rig(gpus=()),
        service=Service(name="chat", model="m"),
        command=command or ("bin/vllm", "--master-addr", "{node0.address}"),
        environment={"VLLM_HOST_IP": "{node.address}"},
        nodes=nodes,
        rank=rank,
    )


NODES = (Node(host="gpu1", address="10.0.0.1"), Node(host="gpu2", address="10.0.0.2"))


def test_addresses_are_put_into_the_words_of_each_host() -> None:
    plans = (across(0), across(1))
    group = bound_nodes(plans, NODES)
    (worker,) = bind(plans[1:], Probe(), {"chat": group})
    assert worker.command == ("bin/vllm", "--master-addr", "10.0.0.1")
    assert worker.environment == {"VLLM_HOST_IP": "10.0.0.2"}
    assert (worker.nodes, worker.group_digest, worker.offline) == (NODES, group.digest, plans[1])


def test_a_plan_whose_hosts_nobody_knows_keeps_its_words() -> None:
    plans = (across(0), across(1))
    (head,) = bind(plans[:1], Probe(), {"chat": bound_nodes(plans, ())})
    assert (head.command, head.environment, head.nodes) == (plans[0].command, plans[0].environment, plans[0].nodes)


def test_a_digest_is_another_one_where_any_host_runs_something_else() -> None:
    def digest(head: tuple[str, ...], worker: tuple[str, ...], nodes: tuple[Node, ...] = NODES) -> str:
        return bound_nodes((across(0, *head), across(1, *worker)), nodes).digest

    first = digest(("bin/x",), ("bin/y",))
    assert first == digest(("bin/x",), ("bin/y",))
    elsewhere = (NODES[0], Node(host="gpu2", address="10.0.0.3"))
    others = [
        digest(("bin/x",), ("bin/y", "--more")),
        digest(("bin/z",), ("bin/y",)),
        digest(("bin/x",), ("bin/y",), elsewhere),
    ]
    assert len({first, *others}) == 4


WHEELS = {"model": "MiniMax-M2.5", "engine": "vllm"}


def host_with_nodes(*nodes: int | None, memory_gib: int = 512, driver: bool = True) -> Probe:
    """Equal cards on these NUMA nodes, in the order of the bus."""
    pci = tuple(PciGpu(f"0000:{index + 1:02x}:00.0", numa_node=node) for index, node in enumerate(nodes))
    cards = tuple(
        ProbedGpu("NVIDIA H200", index=index, uuid=f"GPU-{index}", numa_node=node) for index, node in enumerate(nodes)
    )
    there = tuple(NumaNode(node, f"{node}-{node}", memory_gib * 2**20) for node in (0, 1))
    return Probe(gpus=cards if driver else (), pci_gpus=tuple(reversed(pci)), numa_nodes=there)


def bound_nodes_of(plan: BoundPlan) -> list[str] | None:
    words = list(plan.command)
    return words[words.index("--numa-bind-nodes") + 1 :] if "--numa-bind" in words else None


@pytest.mark.parametrize("driver", [True, False])
def test_a_service_on_all_cards_is_bound_to_their_nodes(driver: bool) -> None:
    (offline,) = side_by_side({"a": WHEELS}, "4x H200", 512)
    (plan,) = bind((offline,), host_with_nodes(0, 0, 1, 1, driver=driver))
    assert bound_nodes_of(plan) == ["0", "0", "1", "1"]
    assert plan.build is not None and "numactl" in plan.build.runtime_packages
    assert "--numa-bind" not in offline.command


@pytest.mark.parametrize(
    ("nodes", "memory_gib"),
    [((0, 0, 0, 0), 512), ((0, 0, 1, None), 512), ((0, 0, 1, -1), 512), ((0, 0, 1, 2), 512), ((0, 0, 1, 1), 1)],
)
def test_one_node_an_unknown_one_or_a_small_one_changes_nothing(nodes: tuple[int | None, ...], memory_gib: int) -> None:
    (offline,) = side_by_side({"a": WHEELS}, "4x H200", 512)
    (plan,) = bind((offline,), host_with_nodes(*nodes, memory_gib=memory_gib))
    assert (plan.command, plan.build) == (offline.command, offline.build)


def test_a_service_on_some_cards_is_bound_to_the_nodes_of_those() -> None:
    services = {"a": {**WHEELS, "gpus": [0, 1]}, "b": {**WHEELS, "gpus": [2, 3], "port": 8001}}
    made = bind(side_by_side(services, "4x H200", 512), host_with_nodes(0, 1, 1, 0))
    assert [bound_nodes_of(plan) for plan in made] == [["0", "1"], ["1", "0"]]


def test_numactl_does_not_wait_for_the_driver_that_tells_cards_apart() -> None:
    """A plan that is bound again once the driver is there finds it installed."""
    (offline,) = side_by_side({"a": {**WHEELS, "gpus": [0, 1]}}, "4x H200", 512)
    (plan,) = bind((offline,), host_with_nodes(0, 1, 1, 0, driver=False))
    assert bound_nodes_of(plan) is None
    assert plan.build is not None and "numactl" in plan.build.runtime_packages


def test_engines_without_a_binding_stay_as_they_are() -> None:
    (offline,) = side_by_side({"a": {**WHEELS, "engine": "sglang"}}, "4x H200", 512)
    (plan,) = bind((offline,), host_with_nodes(0, 0, 1, 1))
    assert (plan.command, plan.build) == (offline.command, offline.build)
