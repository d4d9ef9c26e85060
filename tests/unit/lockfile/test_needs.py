"""What plans need from the lock."""

from __future__ import annotations

from rigup.lock import Lock, LockedCheckpoint, LockedFile
from rigup.lockfile.needs import needs_of
from rigup.plan import Checkpoint
from tests.unit.planner.asking import decided


def test_a_model_that_drafts_is_pinned_like_the_one_that_it_drafts_for() -> None:
    plan = decided("4x H200", {"model": "MiniMax-M2.5", "engine": "vllm"})
    assert plan.checkpoint is not None
    served = (plan.checkpoint.repo, plan.checkpoint.quant)
    drafting = plan.model_copy(update={"draft": Checkpoint(repo="org/small", quant="BF16", bytes=1)})
    needs = needs_of([drafting])
    assert list(needs.checkpoints) == [served, ("org/small", "BF16")]
    file = LockedFile(path="model.safetensors", size=1, sha256="0" * 64)
    pinned = LockedCheckpoint(repo="org/small", quant="BF16", revision="0" * 40, files=(file,))
    missing = needs.missing(Lock(checkpoints=(pinned,)))
    assert list(missing.checkpoints) == [served]
