"""What is not in the lock is refused by name, with what the lock has in its place."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.artifacts import LockedEnvironment, LockedImage, LockedUv
from rigup.errors import InputError
from rigup.lock import Lock, LockedFile, LockedSource
from rigup.plan import Build, Checkpoint, MoeConfig, Plan
from rigup.project.pinned import HINT, HUB_HINT, require_pinned
from rigup.rig import Rig
from rigup.service import Service

SHA256 = "0" * 64
ENVIRONMENT = LockedEnvironment(
    engine="vllm", version="0.33.0", python="3.12.12", files={"a-1-py3-none-any.whl": SHA256}
)
UV = LockedUv(version="0.13.9", files={"uv-0.13.9-py3-none-manylinux_2_17_x86_64.whl": SHA256})
SOURCE = LockedSource(engine="llama.cpp", version="b11434", address="https://example.org/a", sha256=SHA256, root="a")
IMAGE = LockedImage(
    engine="vllm", version="0.33.0", repository="docker.io/vllm/vllm-openai", digest=f"sha256:{SHA256}", bytes=1
)
LOCK = Lock(environments=(ENVIRONMENT,), sources=(SOURCE,), images=(IMAGE,), uv=UV)
FILES = (LockedFile(path="model.gguf", size=1, sha256=SHA256),)


def plan(build: dict[str, Any], files: tuple[LockedFile, ...] = FILES, **more: Any) -> Plan:
    return Plan(
        host="box",
        group="boxes",
        verdict="ok",
        rig=Rig(gpus=()),
        service=Service(name="chat", model="m"),
        build=Build(**build),
        checkpoint=Checkpoint(repo="org/model", quant="Q4_1", bytes=1, files=files),
        **more,
    )


KERNEL = MoeConfig(
    file="E=1.json",
    status="files",
    experts=1,
    width=1,
    device="card",
    dtype="",
    block_shape=None,
    unlocked=("ours.toml",),
)
WHEEL = {"engine": "vllm", "version": "0.33.0", "method": "wheel", "environment": ENVIRONMENT, "uv": UV}


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        (
            plan({"engine": "vllm", "version": "0.20.2", "method": "wheel"}),
            "vllm 0.20.2 (cuda, x86_64) is not in rigup.lock, which has vllm 0.33.0 (cuda, x86_64)",
            HINT,
        ),
        (
            plan({"engine": "sglang", "version": "0.5.23", "method": "wheel"}),
            "sglang 0.5.23 (cuda, x86_64) is not in rigup.lock",
            HINT,
        ),
        (
            plan({"engine": "llama.cpp", "version": "b11549", "method": "source"}),
            "llama.cpp b11549 is not in rigup.lock, which has llama.cpp b11434",
            HUB_HINT,
        ),
        (
            plan({"engine": "vllm", "version": "0.20.2", "method": "image"}),
            "the image of vllm 0.20.2 is not in rigup.lock, which has that of vllm 0.33.0",
            HINT,
        ),
        (
            plan({**WHEEL, "packages": ("cuda-nvcc-13-0", "gcc")}),
            "cuda-nvcc-13-0 is not in rigup.lock",
            HINT,
        ),
        (
            plan(WHEEL, moe_config=KERNEL),
            "files/moe_configs/ours.toml is not in rigup.lock",
            HINT,
        ),
        (plan(WHEEL, files=()), "org/model Q4_1 is not in rigup.lock", HUB_HINT),
    ],
)
def test_what_is_not_locked_is_named(asked: Plan, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        require_pinned((plan(WHEEL), asked), LOCK)
    assert (caught.value.message, caught.value.hint) == (f"box: chat: {message}", hint)


def test_what_is_locked_passes() -> None:
    require_pinned(
        (plan(WHEEL), plan({"engine": "llama.cpp", "version": "b11434", "method": "source", "sha256": SHA256})), LOCK
    )
