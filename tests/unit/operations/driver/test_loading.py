"""How an installed driver gets into the kernel: by its modules where nobody is in the way, else by a reboot."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.facts.probe import Nvidia, Probe
from rigup.operations.driver import loading, reboots
from rigup.operations.driver.loading import _load
from rigup.plan import DriverPlan

PLAN = DriverPlan(version="580.178.04", branch="580", flavour="open")
NONE = Probe(kernel="6.1.0-25-amd64", kernels=("6.1.0-25-amd64",))
OLD = Probe(nvidia=Nvidia(loaded="580.95.05", installed="580.178.04", flavour="open"))
RIGHT = Probe(nvidia=Nvidia(loaded="580.178.04", installed="580.178.04", flavour="open"))


class Machine:
    """Stands for a host: each probe is the next of those it was given; reboots and reloads are noted, not done."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, probes: list[Probe], users: str = "", reloads: bool = True
    ) -> None:
        self.name, self.data = "box", SimpleNamespace(_sudo=None)
        self.state = SimpleNamespace(config=SimpleNamespace(SUDO=False))
        self.users, self.reloads, self.done = users, reloads, []  # type: ignore[var-annotated]
        monkeypatch.setattr(loading, "read_probe", lambda host: probes.pop(0) if len(probes) > 1 else probes[0])
        monkeypatch.setattr(reboots, "reboot", lambda host, step, why: self.done.append(f"reboot: {why}"))

    def run_shell_command(self, command: Any, **_: Any) -> tuple[bool, Any]:
        line = command.get_raw_value()
        if "modprobe" not in line:
            return True, SimpleNamespace(stdout=self.users, stderr="")
        self.done.append("reload")
        return self.reloads, SimpleNamespace(stdout="", stderr="modprobe: FATAL: Module nvidia_drm is in use.")


GATEWAY = ("rigup-gateway.service", "rigup-gateway-address.service")


def nothing(probe: Probe) -> None:
    """The rig is as declared."""


def test_the_first_driver_is_loaded_without_a_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [NONE, RIGHT])
    _load(machine, PLAN, nothing)
    assert machine.done == ["reload"]


@pytest.mark.parametrize(
    ("running", "stopped"), [("rigup-chat.service", "rigup-chat.service"), ("", None)], ids=["service", "nothing"]
)
def test_a_gateway_on_the_same_host_goes_on(tmp_path: Path, running: str, stopped: str | None) -> None:
    log = tmp_path / "log"
    listed = "".join(f"{unit} loaded active running x\n" for unit in (*GATEWAY, *running.split()))
    (tmp_path / "listed").write_text(listed)
    systemctl = f'[ "$1" = list-units ] && exec cat {tmp_path}/listed\necho "$@" >> {log}\n'
    for name, text in (("systemctl", systemctl), ("modprobe", "true\n")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["sh", "-euc", loading._RELOAD, "rigup", "none"], env=variables, check=True, timeout=60)
    expected = [f"stop {stopped}", f"start --no-block {stopped}"] if stopped else []
    assert (log.read_text().splitlines() if log.exists() else []) == expected


def test_modules_that_are_in_use_mean_a_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [OLD, RIGHT], reloads=False)
    _load(machine, PLAN, nothing)
    why = (
        "the kernel runs 580.95.05; the kernel modules cannot be reloaded: "
        "modprobe: FATAL: Module nvidia_drm is in use."
    )
    assert machine.done == ["reload", f"reboot: {why}"]


def test_cards_that_somebody_else_uses_are_left_alone_and_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [OLD, RIGHT], users="1200 Xorg\n1311 nv-hostengine\n")
    _load(machine, PLAN, nothing)
    why = "the kernel runs 580.95.05; Xorg (process 1200), nv-hostengine (process 1311) use the GPUs"
    assert machine.done == [f"reboot: {why}"]


def test_nouveau_only_goes_with_a_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [Probe(nvidia=Nvidia(nouveau=True)), RIGHT])
    _load(machine, PLAN, nothing)
    (done,) = machine.done
    assert done.startswith("reboot: nouveau ")


def test_a_driver_that_is_right_by_now_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [RIGHT])
    _load(machine, PLAN, nothing)
    assert machine.done == []


def test_what_is_wrong_after_everything_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostFailed) as caught:
        _load(Machine(monkeypatch, [NONE], reloads=False), PLAN, nothing)
    assert caught.value.message.startswith("box: driver: ")
    assert caught.value.message.endswith(", not 580.178.04, although it is installed")
    assert "dkms status" in (caught.value.hint or "")


def test_an_older_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    older = Probe(kernel="6.1.0-21-amd64", kernels=("6.1.0-21-amd64", "6.1.0-25-amd64"))
    with pytest.raises(HostFailed) as caught:
        _load(Machine(monkeypatch, [older], reloads=False), PLAN, nothing)
    assert "booted kernel 6.1.0-21-amd64, not the newest 6.1.0-25-amd64" in caught.value.message


def test_a_driver_whose_library_complains_is_not_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    complaining = Probe(nvidia=Nvidia(loaded="580.178.04", flavour="open", error="Unknown Error"))
    with pytest.raises(HostFailed) as caught:
        _load(Machine(monkeypatch, [complaining]), PLAN, nothing)
    assert caught.value.message == "box: driver: driver 580.178.04 is loaded, but NVML fails: Unknown Error"


def test_the_cards_are_held_against_the_rig_once_they_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(probe: Probe) -> None:
        raise HostFailed("declared: 4; found: 3")

    with pytest.raises(HostFailed, match="declared: 4; found: 3"):
        _load(Machine(monkeypatch, [NONE, RIGHT]), PLAN, wrong)


def test_jobs_that_run_beside_are_not_stopped_for_new_modules(tmp_path: Path) -> None:
    listed = ("rigup-chat.service", "rigup-build-x.service", "rigup-weights-y.service", "rigup-shared_weights.service")
    lines = "".join(f"{unit} loaded active running x\\n" for unit in listed)
    scripts = {
        "systemctl": f'[ "$1" = list-units ] && printf "{lines}"; echo "$@" >>"{tmp_path}/told"',
        "modprobe": ":",
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", loading._RELOAD, "rigup"], check=True, env=environment)
    told = [line for line in (tmp_path / "told").read_text().splitlines() if not line.startswith("list-units")]
    assert told == ["stop rigup-chat.service", "start --no-block rigup-chat.service"]
