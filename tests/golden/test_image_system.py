"""R9 of the example systems: an image pinned by digest, run by a systemd unit like any other build.

The digest is a stand-in, since the toolkit's lock has none: a registry is asked when somebody locks a fleet.
"""

from __future__ import annotations

from rich.console import Console

from rigup.artifacts import LockedImage
from rigup.cli.output.plan import show
from rigup.lock import Lock, LockedCheckpoint, LockedFile
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from rigup.systemd.quadlet import service_file
from tests.golden.golden import assert_golden
from tests.golden.test_example_systems import INVENTORY, PLANS
from tests.nodes import unbound
from tests.terminal import Terminal

IMAGE = LockedImage(
    engine="vllm", version="0.20.2", repository="docker.io/vllm/vllm-openai", digest="sha256:" + "0123456789abcdef" * 4
)
FILE = LockedFile(path="model.safetensors", size=230_134_260_592, sha256="0" * 64)
CHECKPOINT = LockedCheckpoint(repo="MiniMaxAI/MiniMax-M2.5", quant="FP8", revision="0" * 40, files=(FILE,))
LOCK = Lock(images=(IMAGE,), checkpoints=(CHECKPOINT,))


def shown(lock: Lock | None) -> str:
    project = load_project(str(INVENTORY), "quad_b200_image")
    file = Terminal()
    show(plan_project(project, lock), Console(file=file, width=80, highlight=False, color_system=None))
    return file.getvalue()


def test_it_is_planned_without_a_digest_and_says_so() -> None:
    assert "  image    not locked; run rigup lock\n" in shown(Lock())


def test_with_a_digest_it_is_run_by_a_unit_like_any_other_build() -> None:
    assert f"  image    {IMAGE.reference}\n" in shown(LOCK)
    (plan,) = plan_project(load_project(str(INVENTORY), "quad_b200_image"), LOCK)
    assert (plan.verdict, plan.build and plan.build.image) == ("ok", IMAGE)
    assert_golden("unit/quad_b200_image.container", service_file(unbound(plan), "/opt/rigup/builds/unused"))


def test_the_command_is_that_of_an_installed_vllm() -> None:
    (plan,) = (plan for plan in PLANS if plan.group == "quad_b200_image")
    assert plan.command[:2] == ("vllm", "serve")
    assert plan.command[plan.command.index("--tensor-parallel-size") + 1] == "4"
