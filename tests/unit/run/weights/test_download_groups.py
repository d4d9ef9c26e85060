"""Which hosts share a download, and what an inventory says of it."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.errors import InputError
from rigup.operations.weights.checkpoint import checkpoint_key
from rigup.plan import Checkpoint, Plan
from rigup.project.settings import read_settings
from rigup.project.weights_settings import read_weights_settings
from rigup.rig import Rig
from rigup.run.weights.download_groups import distinct, download_groups
from rigup.service import Service
from rigup.settings import WeightsSettings

MB = 1_000_000


def checkpoint(name: str, size: int = 500 * MB) -> Checkpoint:
    files = [{"path": f"{name}.gguf", "size": size, "sha256": "0" * 64}]
    return Checkpoint.model_validate(
        {"repo": f"org/{name}", "quant": "Q4_1", "revision": "abc", "files": files, "bytes": size}
    )


def plan(host: str, name: str, **more: Any) -> Plan:
    service = Service(name=name, model="m")
    made = Plan(host=host, group="g", verdict="ok", rig=Rig(gpus=()), service=service)
    return made.model_copy(update={"checkpoint": checkpoint(name, **more)})


KEY, OTHER = checkpoint_key(checkpoint("one")), checkpoint_key(checkpoint("two"))
HOSTS = ("a", "b", "c")
PLANS = {host: (plan(host, "one"),) for host in HOSTS}
SETTINGS = dict.fromkeys(HOSTS, WeightsSettings())


def members(**changes: Any) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Who fetches and who has it, of each swarm; by default two of three lack the checkpoint."""
    said: dict[str, Any] = {"plans": PLANS, "settings": SETTINGS, "lacking": {"a": {KEY}, "b": {KEY}}, "ready": HOSTS}
    return [(swarm.fetchers, swarm.complete) for swarm in download_groups(**(said | changes))]


def test_those_who_lack_it_fetch_it_together_and_who_has_it_gives() -> None:
    assert members() == [(("a", "b"), ("c",))]


def test_a_newcomer_takes_from_those_who_have_it() -> None:
    assert members(lacking={"c": {KEY}}) == [(("c",), ("a", "b"))]


def test_nobody_to_share_with_is_not_a_swarm() -> None:
    assert members(plans={"a": PLANS["a"]}) == []
    assert members(lacking={}) == []
    assert members(lacking={"a": {KEY}}, ready=("a",)) == []


def test_hosts_of_another_lan_and_hosts_that_do_not_share_are_left_out() -> None:
    assert members(settings=SETTINGS | {"b": WeightsSettings(lan="rack2")}) == [(("a",), ("c",))]
    assert members(settings=SETTINGS | {"c": WeightsSettings(share=False)}) == [(("a", "b"), ())]


def test_a_small_checkpoint_is_not_worth_a_server() -> None:
    small = {host: (plan(host, "one", size=255 * MB),) for host in HOSTS}
    assert members(plans=small, lacking={"a": {checkpoint_key(checkpoint("one", 255 * MB))}}) == []


def test_each_checkpoint_is_a_swarm_of_its_own() -> None:
    both = {host: (plan(host, "one"), plan(host, "two")) for host in HOSTS}
    lacking = {"a": {KEY}, "b": {KEY, OTHER}}
    assert members(plans=both, lacking=lacking) == [(("a", "b"), ("c",)), (("b",), ("a", "c"))]


def test_an_address_that_several_hosts_have_leads_nowhere() -> None:
    assert distinct({"a": "10.0.0.1", "b": "10.0.0.9", "c": "10.0.0.9"}) == {"a": "10.0.0.1"}


def test_what_an_inventory_can_say() -> None:
    said = {"weights_sharing": {"keep": True, "port": 9000, "from_mb": 0}, "weights_mb_per_s": {"hub": 20.5}}
    found = read_weights_settings({**said, "lan": "rack1", "lan_address": "fd00::7"})
    assert found == WeightsSettings(True, True, 9000, 0, 20_500_000, 0, "rack1", "fd00::7")
    assert read_weights_settings({}) == WeightsSettings()
    assert not read_weights_settings({"weights_sharing": False}).share


SHARING_HINT = 'use True, False, or {"keep": False, "port": 8791, "from_mb": 256}'
RATE_HINT = 'set MB/s per host: weights_mb_per_s = {"hub": 20, "lan": 100}'


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        ({"weights_sharing": "no"}, "weights_sharing: 'no' is not True, False or a dictionary", SHARING_HINT),
        ({"weights_sharing": {"ports": 1}}, 'weights_sharing: unknown key "ports"', SHARING_HINT),
        ({"weights_sharing": {"keep": 1}}, "weights_sharing.keep: 1 is not True or False", SHARING_HINT),
        (
            {"weights_sharing": {"port": 80}},
            "weights_sharing.port: 80 is not a whole number from 1024 to 65535",
            SHARING_HINT,
        ),
        ({"weights_mb_per_s": 20}, "weights_mb_per_s: 20 must be a dictionary with the keys hub and lan", RATE_HINT),
        ({"weights_mb_per_s": {"hub": 0}}, "weights_mb_per_s.hub: 0 is not a rate (0.1 or more)", RATE_HINT),
        ({"lan": 1}, "lan: 1 is not a name", 'name the network whose hosts share weights: lan = "rack1"'),
        ({"lan_address": "gpu1"}, 'lan_address: "gpu1" ', "set the address"),
    ],
)
def test_what_it_cannot_say(data: dict[str, Any], message: str, hint: str, tmp_path: Any) -> None:
    with pytest.raises(InputError) as refused:
        read_settings(data, (), tmp_path, dict.fromkeys(data, "group_data/boxes.py"))
    assert refused.value.message.startswith(f"group_data/boxes.py: {message}")
    assert refused.value.hint.startswith(hint)
