"""What a release's manifest says that it was made from."""

from __future__ import annotations

from rigup.plan import Checkpoint
from rigup.systemd.quadlet import quadlet
from rigup.systemd.release import release_of
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
