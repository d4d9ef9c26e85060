"""What a release's manifest says that it was made from."""

from __future__ import annotations

import json

from rigup.commands.swap_groups import as_groups, taking_turns
from rigup.facts.manifest import read_manifest
from rigup.plan import Checkpoint
from rigup.systemd.quadlet import quadlet
from rigup.systemd.release import as_kept, release_of, without_expected
from tests.nodes import unbound
from tests.unit.planner.asking import side_by_side
from tests.unit.systemd.test_quadlet import REVISION, VLLM, planned

DRAFT = Checkpoint(repo="org/small", quant="BF16", bytes=1, revision="a" * 40)


def test_a_model_that_drafts_is_named_and_shown_to_the_container() -> None:
    plan = planned("4x B200", VLLM)
    assert "draft" not in release_of(plan, "build").manifest
    drafting = plan.model_copy(update={"draft": DRAFT})
    assert release_of(drafting, "build").manifest["draft"] == {
        "repo": "org/small",
        "quant": "BF16",
        "revision": "a" * 40,
    }
    folders = [
        f"/var/lib/rigup/weights/{where}" for where in (f"MiniMaxAI/MiniMax-M2.5/{REVISION}", f"org/small/{'a' * 40}")
    ]
    text = quadlet(drafting, "/opt/rigup/builds/image-1-abc")
    assert [line for line in text.splitlines() if "/var/lib/rigup/weights/" in line and line.startswith("Volume")] == [
        f"Volume={folder}:{folder}:ro" for folder in folders
    ]


def test_a_release_says_where_files_lie_that_rigup_has_no_copy_of() -> None:
    plan = planned("4x B200", VLLM)
    assert plan.checkpoint is not None
    lying = plan.checkpoint.model_copy(update={"location": "/models/x.gguf"})
    assert "place" not in release_of(plan, "build").manifest["checkpoint"]
    assert (
        release_of(plan.model_copy(update={"checkpoint": lying}), "build").manifest["checkpoint"]["place"] == "/models"
    )


def test_a_swap_group_names_all_that_it_loads_and_how() -> None:
    small = {"model": "SmolLM2-135M-Instruct", "swap": True}
    services = {"chat": {"model": "MiniMax-M2.5", "quant": "UD-IQ2_M", "context": 8192, "swap": True}, "small": small}
    (whole,) = as_groups(taking_turns(side_by_side(services, "4x RTX 3090", 64)))
    manifest = release_of(unbound(whole), "build").manifest
    members = manifest["members"]
    assert {name: (one["model"], one["checkpoint"]["quant"]) for name, one in members.items()} == {
        "chat": ("minimax-m2.5", "UD-IQ2_M"),
        "small": ("smollm2-135m-instruct", "Q4_1"),
    }
    assert [one["preset"].partition("\n")[0] for one in members.values()] == [
        f"[{one['model']}]" for one in members.values()
    ]
    assert manifest["checkpoint"] == members["chat"]["checkpoint"]
    assert {one["expected_answer"] for one in members.values()} == {"Paris"}
    assert read_manifest(json.dumps(manifest), "release.json") == manifest
    earlier = {**manifest, "members": {name: without_expected(one) for name, one in members.items()}}
    assert as_kept(manifest, earlier) == earlier
