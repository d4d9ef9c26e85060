"""Bad input of `rigup tune`, said before any host is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.environment import LockedEnvironment, LockedUv
from rigup.lock import Lock, LockedCheckpoint, LockedDriver, LockedFile
from rigup.render.lock_text import lock_text
from tests.command_line import CommandLine

REPO = "MiniMaxAI/MiniMax-M2.5"
RIG = {"gpus": "8x RTX PRO 6000 Blackwell Max-Q Workstation Edition", "host_memory_gib": 512}
SERVICE = {"checkpoint": REPO, "engine": "vllm", "version": "0.33.0"}
WEIGHTS = LockedFile(path="model.safetensors", size=230_134_260_592, sha256="0" * 64)
LOCK = Lock(
    driver=LockedDriver(version="580.178.04", branch="580"),
    uv=LockedUv(version="1.0", files={"uv-1.0-py3-none-manylinux.whl": "0" * 64}),
    environments=(
        LockedEnvironment(engine="vllm", version="0.33.0", python="3.12.12", files={"triton-3.8.0-x.whl": "0" * 64}),
    ),
    checkpoints=(LockedCheckpoint(repo=REPO, quant="FP8", revision="1" * 40, files=(WEIGHTS,)),),
)


def described(root: Path, **services: dict[str, object]) -> CommandLine:
    line = CommandLine(root)
    wanted = services or {"minimax": SERVICE}
    line.describe(["a.example", "b.example"], f"rig = {RIG!r}\nservices = {wanted!r}\n")
    line.write("rigup.lock", lock_text(LOCK))
    return line


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("nosuch",), 'inventories/fleet.py: no group "nosuch"', "groups: boxes"),
        (("boxes", "--host", "c.lan"), "--host: c.lan is not in group boxes", "its hosts: a.example, b.example"),
        (("boxes", "--service", "x"), '--service: boxes has no service "x"', "its services: minimax"),
        (("boxes", "--tokens", "x"), '--tokens: "x" is no list of numbers of tokens', "e.g. --tokens 1,8,64,512"),
        (("boxes", "--runs", "2"), "--runs: 2 runs cannot tell a gain from chance", "3 at least"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_exit_code_2(tmp_path: Path, words: tuple[str, ...], message: str, hint: str) -> None:
    done = described(tmp_path).run("tune", *words)
    assert done.code == 2
    assert done.err == f"rigup: {message}\nhint: {hint}\n"


def test_a_service_without_such_a_kernel_has_nothing_to_tune(tmp_path: Path) -> None:
    marlin = SERVICE | {"flags": {"--moe-backend": "marlin"}}
    done = described(tmp_path, minimax=marlin).run("tune", "boxes")
    assert done.code == 2
    assert done.err == (
        "rigup: group_data/boxes.py: services.minimax: vllm 0.33.0 with MiniMaxAI/MiniMax-M2.5 FP8 runs no kernel here "
        "that a config tunes\n"
        "hint: vLLM and SGLang do for FP8 experts on GPUs that compute in FP8, in their Triton backend\n"
    )
