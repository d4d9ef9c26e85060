"""What a probe shows that is not as planned, each difference by itself; nothing where nothing differs."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from rigup.catalogue.driver_versions import locked_driver
from rigup.cli.diff import show_drift
from rigup.cli.output.console import Console
from rigup.facts.probe import Nvidia, PowerLimits, Probe, ProbedGpu, UnitState
from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service
from rigup.run.drift import Drift, What, drift_of, left_over
from tests.unit.planner.asking import FILE, catalogue

DRIVER = "580.178.04"
LEFT_OVER: What = "not in the inventory"
DIFFERS = "differs from the plan"
CHECKPOINT = {"repo": "some/model", "quant": "Q4", "revision": "0123456789abcdef"}
MANIFEST: dict[str, Any] = {
    "build": "llama.cpp-b1-abc",
    "checkpoint": CHECKPOINT,
    "command": ["bin/llama-server", "--parallel", "1"],
    "environment": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    rig = read_rig({"gpus": "2x RTX 3090", "power_limit_w": 300}, FILE, catalogue())
    services = {"chat": {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}}
    (service,) = read_services(services, FILE, rig)
    return plan_service("gpu1", "group", rig, service, catalogue(), Lock(driver=locked_driver(DRIVER)))


@pytest.fixture(scope="module")
def probe(plan: Plan) -> Probe:
    """A host that is just as planned."""
    limits = PowerLimits(limit_w=300)
    name, memory = plan.rig.gpus[0].name, plan.rig.gpus[0].memory_mib
    return Probe(
        os="debian-12",
        kernel="6.1.0-40-amd64",
        kernels=("6.1.0-39-amd64", "6.1.0-40-amd64"),
        nvidia=Nvidia(loaded=DRIVER, installed=DRIVER, packages={"nvidia-open": f"{DRIVER}-1"}),
        gpus=tuple(ProbedGpu(name, 0, memory, 40, index, f"GPU-{index}", power=limits) for index in range(2)),
        builds=("llama.cpp-b1-abc",),
        weights=("/var/lib/rigup/weights/some/model/0123456789abcdef",),
        current={"chat": "1"},
        releases={"chat": MANIFEST},
        units={"chat": UnitState(active="active", overrides="/usr/lib/systemd/system/service.d/10-all.conf")},
    )


def drift(probe: Probe, plan: Plan, **manifest: Any) -> tuple[Drift, ...]:
    return drift_of(probe, (plan,), {"chat": MANIFEST | manifest})


def one(probe: Probe, plan: Plan, **manifest: Any) -> tuple[str, str, str]:
    (found,) = drift(probe, plan, **manifest)
    return found.what, found.service, found.message


def test_nothing_where_nothing_differs(probe: Probe, plan: Plan) -> None:
    assert drift(probe, plan) == ()


NEXT = "6.1.0-41-amd64"


@pytest.mark.parametrize(
    ("modules", "more", "waits"),
    [
        ({NEXT: DRIVER}, "", False),
        ({}, f"; kernel {NEXT} has no NVIDIA module", True),
        ({NEXT: "590.48.01"}, f"; kernel {NEXT} has NVIDIA's module 590.48.01, not {DRIVER}", True),
    ],
)
def test_a_reboot_into_another_kernel_is_advised_only_where_it_has_the_driver(
    probe: Probe, plan: Plan, modules: dict[str, str], more: str, waits: bool
) -> None:
    newer = replace(probe, kernels=(*probe.kernels, NEXT), kernel_modules=modules)
    (found,) = drift(newer, plan)
    assert (found.what, found.message) == ("kernel", f"runs 6.1.0-40-amd64, the next boot starts {NEXT}{more}")
    assert found.hint == ("do not reboot yet: run rigup apply" if waits else "reboot when convenient")


def test_a_kept_driver_without_a_module_for_the_next_kernel_is_mended_by_hand(probe: Probe, plan: Plan) -> None:
    (found,) = drift(replace(probe, kernels=(*probe.kernels, NEXT)), plan.model_copy(update={"driver": None}))
    assert found.hint.startswith("do not reboot") and f"dkms autoinstall -k {NEXT}" in found.hint


def test_a_host_whose_driver_does_not_run_yet_is_applied_to_first(probe: Probe, plan: Plan) -> None:
    idle = replace(probe, kernels=(*probe.kernels, NEXT), nvidia=replace(probe.nvidia, loaded="", installed=""))
    hints = {found.what: found.hint for found in drift(idle, plan)}
    assert hints["kernel"].startswith("run rigup apply")


def test_packages_that_dpkg_has_not_finished_are_told_whatever_they_are(probe: Probe, plan: Plan) -> None:
    (found,) = drift(replace(probe, unfinished=("linux-image-6.1.0-41-amd64", "zfs-dkms")), plan)
    assert found.what == "packages"
    assert found.message.endswith(" linux-image-6.1.0-41-amd64, zfs-dkms")
    assert found.hint.endswith("dpkg --configure -a")


def test_the_machine(probe: Probe, plan: Plan) -> None:
    lost = replace(probe, gpus=probe.gpus[:1])
    name = plan.rig.gpus[0].name
    assert one(lost, plan) == ("gpus", "", f"declared: 2x {name}; found: 1x {name}")
    turned_up = (probe.gpus[0], replace(probe.gpus[1], power=PowerLimits(limit_w=350)))
    assert one(replace(probe, gpus=turned_up), plan) == ("power", "", "GPU 1 has 350 W; declared: 300 W")


def test_the_driver_and_its_packages(probe: Probe, plan: Plan) -> None:
    other = replace(probe.nvidia, loaded="590.48.01", installed="590.48.01")
    assert one(replace(probe, nvidia=other), plan) == ("driver", "", "590.48.01, lock 580.178.04")
    upgraded = replace(probe.nvidia, packages={"nvidia-open": "590.48.01-1"})
    assert one(replace(probe, nvidia=upgraded), plan) == ("packages", "", "nvidia-open 590.48.01")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"build": "llama.cpp-b2-def"}, ("build", "llama.cpp-b1-abc; the plan: llama.cpp-b2-def")),
        (
            {"checkpoint": CHECKPOINT | {"quant": "Q8"}},
            ("checkpoint", "some/model Q4 at 0123456789ab; the plan: some/model Q8 at 0123456789ab"),
        ),
        ({"command": ["bin/llama-server", "--parallel", "2"]}, ("command", "1; the plan: 2")),
        (
            {"environment": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "A": "b"}},
            ("environment", f"{DIFFERS}: A"),
        ),
        ({"moe_configs": {"E=8.json": "ab12"}}, ("config", f"moe_configs {DIFFERS}")),
    ],
)
def test_a_release_of_something_else(probe: Probe, plan: Plan, wanted: dict[str, Any], found: tuple[str, str]) -> None:
    assert one(probe, plan, **wanted) == (found[0], "chat", found[1])


def test_what_a_release_needs_is_gone(probe: Probe, plan: Plan) -> None:
    assert one(replace(probe, builds=()), plan)[2] == "/opt/rigup/builds/llama.cpp-b1-abc no longer exists"
    assert one(replace(probe, weights=()), plan)[:2] == ("checkpoint", "chat")
    assert one(replace(probe, releases={}), plan) == ("not applied", "chat", "has no release on this host")


def test_a_build_of_a_host_that_is_not_trusted_with_it(probe: Probe, plan: Plan) -> None:
    build = "llama.cpp-b1-abc"
    strange = replace(probe, built_by={build: "gpu9.lan"})
    assert one(strange, plan) == ("build", "chat", f"{build} was built by gpu9.lan, not this host")
    (found,) = drift_of(strange, (plan,), {"chat": MANIFEST}, ("gpu1.lan",))
    assert found.message == f"{build} was built by gpu9.lan, neither this host nor its builder gpu1.lan"
    assert f"rm -r /opt/rigup/builds/{build}" in found.hint
    assert drift_of(strange, (plan,), {"chat": MANIFEST}, ("gpu1.lan", "gpu9.lan")) == ()
    assert drift(replace(probe, built_by={build: plan.host}), plan) == ()


def test_a_unit_that_was_meddled_with(probe: Probe, plan: Plan) -> None:
    stopped = replace(probe, units={"chat": UnitState(active="inactive")})
    assert one(stopped, plan) == ("state", "chat", "rigup-chat.service is inactive")
    edited = "/usr/lib/systemd/system/service.d/10-all.conf /etc/systemd/system/rigup-chat.service.d/override.conf"
    (found,) = drift(replace(probe, units={"chat": UnitState(active="active", overrides=edited)}), plan)
    assert (found.what, found.message) == ("unit overrides", edited.split()[1])
    assert found.hint == "to remove them: systemctl revert rigup-chat.service; apply keeps them"


def test_a_service_that_no_plan_names(probe: Probe, plan: Plan) -> None:
    more = replace(probe, current={**probe.current, "old": "7"}, units={**probe.units, "old": UnitState("active")})
    assert one(more, plan) == (LEFT_OVER, "old", "rigup-old.service is active")
    assert left_over(more, (plan,)) == ("old",)
    assert left_over(more, ()) == ("chat", "old")


def test_in_words(probe: Probe, plan: Plan) -> None:
    edited = "/etc/systemd/system/rigup-chat.service.d/override.conf"
    found = drift(replace(probe, units={"chat": UnitState(active="active", overrides=edited)}), plan)
    file = io.StringIO()
    show_drift({"gpu1": found, "gpu2": ()}, Console(file=file, width=200))
    hint = "to remove them: systemctl revert rigup-chat.service; apply keeps them"
    assert file.getvalue() == f"gpu1: {DIFFERS}\n  ! chat unit overrides: {edited}\n    hint: {hint}\n"


def test_each_checkpoint_of_services_that_take_turns_must_be_there(plan: Plan, probe: Probe) -> None:
    other = {**CHECKPOINT, "repo": "other/model"}
    first = {"model": "a", "preset": "[a]\n", "checkpoint": CHECKPOINT}
    second = {"model": "b", "preset": "[b]\n", "checkpoint": other}
    release = {**MANIFEST, "members": {"chat": first, "coder": second}}
    there = replace(probe, releases={"chat": release})
    changed = {"chat": first | {"preset": "[a]\nparallel = 2\n"}, "coder": second}
    found = drift_of(there, (plan,), {"chat": release | {"members": changed}})
    assert [(one.what, one.message) for one in found] == [
        ("config", f"members {DIFFERS}"),
        ("checkpoint", "/var/lib/rigup/weights/other/model/0123456789abcdef has no receipt"),
    ]


def test_packages_that_dpkg_has_left_by_halves_are_told_with_or_without_a_service(probe: Probe, plan: Plan) -> None:
    stuck = replace(probe, unfinished=("docker-ce", "zfs-dkms"))
    idle = replace(stuck, releases={}, current={}, units={})
    for found in (drift(stuck, plan), drift_of(idle, (), {})):
        (told,) = found
        assert (told.what, told.message.partition("finished ")[2]) == ("packages", "docker-ce, zfs-dkms")
        assert "dpkg --configure -a" in (told.hint or "")
