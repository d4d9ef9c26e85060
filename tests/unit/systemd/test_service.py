"""The systemd unit: golden text, systemd's own opinion of it, and keys that are nowhere to be seen."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rigup.artifacts import LockedEnvironment
from rigup.lock import Lock, LockedFile
from rigup.plan import BoundPlan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service
from rigup.systemd.service import unit, user_name
from tests.golden.golden import assert_golden
from tests.nodes import unbound
from tests.unit.planner.rules.builder import CATALOGUE, PRO_6000

WORST_SCORE = 3.0
FOLDER = "/opt/rigup/builds/engine-1-abc"
CHAT = {"model": "SmolLM2-135M-Instruct"}
VLLM = {"checkpoint": "MiniMaxAI/MiniMax-M2.5", "engine": "vllm", "tensor_parallel": 4, "tools": True}


def planned(gpus: Any, service: dict[str, Any], name: str = "chat") -> BoundPlan:
    rig = read_rig({"gpus": gpus, "host_memory_gib": 256}, "test", CATALOGUE)
    (wanted,) = read_services({name: service}, "test")
    plan = plan_service("host", "group", rig, wanted, CATALOGUE, Lock())
    assert plan.verdict == "ok", plan.refusals
    return unbound(plan)


CASES = {
    "llama-cpp-on-cpu": ([], CHAT),
    "llama-cpp-on-cpu-for-others": ([], {**CHAT, "listen": "0.0.0.0"}),
    "llama-cpp-on-gpus": ("4x RTX 3090", {"model": "MiniMax-M2.5", "quant": "UD-IQ2_M", "context": 32768}),
    "vllm": (f"4x {PRO_6000}", VLLM),
    "vllm-for-others": (f"4x {PRO_6000}", {**VLLM, "listen": "0.0.0.0", "api_key_file": "secrets/minimax.key"}),
    "sglang-for-others": (f"4x {PRO_6000}", {**VLLM, "engine": "sglang", "listen": "0.0.0.0"}),
}


def test_a_build_with_a_compiler_is_told_where_it_is_and_the_users_own_word_counts() -> None:
    plan = planned(*CASES["vllm"])
    assert plan.build is not None and plan.build.compiler is not None
    assert plan.build.compiler.compute_capabilities == (), "nothing is compiled with it for the rig's cards"
    sglang = planned(*CASES["sglang-for-others"]).build
    assert sglang is not None and sglang.compiler is not None
    assert sglang.compiler.compute_capabilities == ("12.0",)
    files = {"nvidia_cuda_nvcc-13.0.88-x.whl": "0" * 64}
    locked = LockedEnvironment(engine="vllm", version="0.33.0", python="3.12.12", files=files)

    def variables(**update: Any) -> dict[str, str]:
        found = plan.model_copy(update={"build": plan.build.model_copy(update={"environment": locked}), **update})
        lines = unit(found, FOLDER).splitlines()
        return dict(line[13:].strip('"').split("=", 1) for line in lines if line.startswith("Environment="))

    assert variables()["CUDA_HOME"] == f"{FOLDER}/cuda"
    assert variables()["PATH"].split(":")[:2] == [f"{FOLDER}/bin", f"{FOLDER}/cuda/bin"]
    assert "/usr/bin" in variables()["PATH"].split(":"), "the unit asks nvidia-smi"
    assert variables(environment={"CUDA_HOME": "/usr/local/cuda"})["CUDA_HOME"] == "/usr/local/cuda"
    older = {"nvidia_cuda_nvcc-13.5.37-x.whl": "0" * 64}
    locked = locked.model_copy(update={"files": older})
    assert not {"PATH", "CUDA_HOME"} & variables().keys()


def test_files_of_the_host_are_bound_read_only_and_mounted_before() -> None:
    plan = planned([], CHAT)
    assert plan.checkpoint is not None
    file = LockedFile(path="x.gguf", size=1, sha256="0" * 64)
    lies = {"location": "/mnt/big/x.gguf", "repo": "local/x", "revision": "0" * 40, "files": (file,)}
    lines = unit(plan.model_copy(update={"checkpoint": plan.checkpoint.model_copy(update=lies)}), FOLDER).splitlines()
    shown = f"/var/lib/rigup/weights/local/x/{'0' * 40}/x.gguf"
    assert f"BindReadOnlyPaths=/mnt/big/x.gguf:{shown}" in lines
    assert "RequiresMountsFor=/mnt/big" in lines


@pytest.mark.parametrize("case", CASES)
def test_units_are_as_reviewed(case: str) -> None:
    assert_golden(f"unit/{case}.service", unit(planned(*CASES[case]), FOLDER))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_rates_the_sandbox(case: str, tmp_path: Path) -> None:
    path = tmp_path / "rigup-chat.service"
    path.write_text(unit(planned(*CASES[case]), FOLDER))
    command = ["systemd-analyze", "security", "--offline=true", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    score = re.search(r"Overall exposure level for \S+: ([\d.]+)", said.stdout)
    assert score is not None, said.stdout + said.stderr
    assert float(score[1]) <= WORST_SCORE


@pytest.mark.parametrize("case", CASES)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_understands_every_line(case: str, tmp_path: Path) -> None:
    path = tmp_path / "rigup-chat.service"
    program = tmp_path / "bin"
    plan = planned(*CASES[case])
    for name in {plan.command[0]}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert program.is_dir()
    path.write_text(unit(plan, str(tmp_path)))
    said = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=60)
    about_us = [line for line in said.stderr.splitlines() if "rigup-chat" in line]
    assert about_us == []


def test_gpu_devices_are_reachable_and_nothing_else_is() -> None:
    with_gpus = unit(planned(*CASES["vllm"]), FOLDER)
    assert "DevicePolicy=closed\nDeviceAllow=char-nvidia* rw\n" in with_gpus
    assert "PrivateDevices" not in with_gpus
    assert "MemoryDenyWriteExecute" not in with_gpus
    without = unit(planned(*CASES["llama-cpp-on-cpu"]), FOLDER)
    assert "PrivateDevices=yes\n" in without
    assert "MemoryDenyWriteExecute=yes\n" in without
    assert "DeviceAllow" not in without


def test_a_key_is_loaded_as_a_credential_only_where_one_is_wanted() -> None:
    assert "LoadCredential=api-key:/etc/rigup/services/chat/api-key\n" in unit(
        planned(*CASES["vllm-for-others"]), FOLDER
    )
    assert "LoadCredential" not in unit(planned(*CASES["vllm"]), FOLDER)


def test_long_service_names_make_short_and_distinct_users() -> None:
    assert user_name("chat") == "rigup-chat"
    long = ["a" * 31, "a" * 30 + "b"]
    users = {user_name(name) for name in long}
    assert len(users) == 2
    assert all(len(user) <= 31 for user in users)


def test_a_refused_plan_has_no_unit() -> None:
    rig = read_rig({"gpus": "1x RTX 3090"}, "test", CATALOGUE)
    (wanted,) = read_services({"chat": {"model": "MiniMax-M2.5", "quant": "Q8_0"}}, "test")
    refused = plan_service("host", "group", rig, wanted, CATALOGUE, Lock())
    assert refused.verdict == "refused"
    with pytest.raises(ValueError, match="refused"):
        unit(unbound(refused), FOLDER)


def test_the_port_of_a_service_with_a_key_is_its_units_or_closed() -> None:
    lines = unit(planned(*CASES["vllm-for-others"]), FOLDER).splitlines()
    assert "Wants=network-online.target closed-port@8000.service" in lines
    before, after = (next(line for line in lines if line.startswith(key)) for key in ("ExecStartPre", "ExecStopPost"))
    assert "system.slice/rigup-chat.service" in before and "tcp dport 8000" in before
    assert (
        before.replace(r"socket cgroupv2 level 2 != \"system.slice/rigup-chat.service\" ", "").partition("=")[2]
        == (after.partition("=")[2])
    )
    assert "port" not in "".join(line for line in unit(planned(*CASES["vllm"]), FOLDER).splitlines() if "nft" in line)


@pytest.mark.parametrize("seconds", [0, 600])
def test_a_unit_stops_as_its_service_says(seconds: int) -> None:
    lines = unit(planned([], {**CHAT, "drain_timeout": seconds}), FOLDER).splitlines()
    assert f"TimeoutStopSec={seconds + 60}" in lines
    program = "/usr/bin/python3 -EsS /opt/rigup/programs/drain.py rigup-chat.service"
    stopping = [f"ExecStop=-+{program} 8000 600", f"ExecStopPost=-+{program}"] if seconds else []
    assert [line for line in lines if line.startswith("ExecStop")] == stopping
