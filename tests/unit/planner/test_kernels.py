"""What a plan says of kernels, from tables that the engines' own code filled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigup.catalogue import kernels as tables
from rigup.catalogue.kernels import FOLDER, kernel_table
from rigup.commands.rendered import plan_of
from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.inputs.locked import planning_request
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.planner.kernels import kernels_text
from rigup.project.planning import decide_all
from rigup.run.kernel_status import unplanned
from tests.unit.planner.asking import catalogue, decided

PRO_6000 = "4x RTX PRO 6000 Blackwell Server Edition"
M2_5: dict[str, Any] = {"model": "MiniMax-M2.5", "quant": "FP8", "engine": "vllm"}


def planned(**changes: Any) -> Plan:
    plan = decided(PRO_6000, M2_5 | changes, 512)
    assert plan.verdict == "ok", plan.refusals
    return plan


def test_a_plan_names_the_kernels_and_who_says_so() -> None:
    plan = planned()
    assert plan.kernels["attention"] == ("FLASH_ATTN",)
    assert plan.kernels["experts"] == ("DEEPGEMM",)
    assert kernels_text(plan).startswith("attention FLASH_ATTN, linear ")
    (figure,) = [row for row in plan.figures if row.figure == "attention kernels"]
    assert (figure.value, figure.source) == ("FLASH_ATTN", "docs/judges.md: the code of vLLM 0.33.0 without a card")


def test_another_release_takes_the_same_table_and_says_so() -> None:
    plan = planned(version="0.32.0")
    (figure,) = [row for row in plan.figures if row.figure == "attention kernels"]
    assert figure.source.endswith("; 0.32.0 was not asked")
    assert kernels_text(plan).endswith(" (as in 0.33.0)")
    assert dict(unplanned(plan, {"attention": ("FLASHINFER",)})) == {}


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ({"--moe-backend": "triton"}, {"attention", "linear"}),
        ({"--attention-backend": "FLASHINFER"}, {"linear", "experts"}),
    ],
)
def test_nothing_is_said_of_what_the_users_flags_choose(flags: dict[str, str], parts: set[str]) -> None:
    assert set(planned(flags=flags).kernels) == parts


def test_cards_of_two_kinds_have_no_row() -> None:
    plan = decided(["RTX 3090", "RTX 5090"], {"model": "gpt-oss-20b", "engine": "vllm", "tensor_parallel": 2}, 64)
    assert plan.verdict == "ok"
    assert plan.kernels == {}


def test_a_start_that_took_other_kernels_is_told() -> None:
    plan = planned()
    assert dict(unplanned(plan, plan.kernels)) == {}
    assert dict(unplanned(plan, {"attention": ("FLASHINFER",)})) == {"attention": ("FLASHINFER",)}
    assert dict(unplanned(plan, {"sampling": ("anything",)})) == {}


def test_what_has_no_attention_on_a_card_is_refused_for_the_release_that_was_asked() -> None:
    asked = {"checkpoint": "deepseek-ai/DeepSeek-V4-Flash-0731", "model": "DeepSeek-V4-Flash-0731", "engine": "vllm"}
    (finding,) = decided("8x A100-SXM4-80GB", asked, 1024).refusals
    assert finding.rule == "attention-kernels"
    assert finding.message.endswith("FLASHMLA_SPARSE_DSV4 does not claim compute capability 8.0")
    assert decided("8x A100-SXM4-80GB", {**asked, "version": "0.32.0"}, 1024).verdict == "ok"


def test_a_release_that_was_not_asked_has_the_table_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("0.9.0", "0.25.1", "0.33.0"):
        (tmp_path / f"vllm-{version}.json").write_text(f'{{"version": "{version}", "kernels": {{}}, "unable": {{}}}}')
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    found = {
        version: tables.kernel_table.__wrapped__("vllm", version)
        for version in ("0.8.5", "0.9.0", "0.25.0", "0.25.1", "0.32.0", "0.33.0", "0.40.0")
    }
    assert [table.version for table in found.values() if table] == [*["0.9.0"] * 2, *["0.25.1"] * 2, *["0.33.0"] * 3]
    assert tables.kernel_table.__wrapped__("sglang", "0.5.23") is None


def test_every_table_is_of_an_engine_and_complete() -> None:
    for path in FOLDER.glob("*.json"):
        engine, _, version = path.stem.partition("-")
        table = kernel_table(engine, version)  # type: ignore[arg-type]
        assert table is not None
        assert table.version == version
        for kind in table.kernels.values():
            for caches in kind.values():
                for capabilities in caches.values():
                    for kernels in capabilities.values():
                        assert kernels
                        assert set(kernels) <= {"attention", "linear", "experts", "sampling"}


@pytest.mark.parametrize(("gpus", "asked"), [("8x B200", True), ("8x H200", False)])
def test_large_blocks_do_not_wait_for_kernels_that_a_start_would_download(gpus: str, asked: bool) -> None:
    plan = decided(gpus, {"checkpoint": "MiniMaxAI/MiniMax-M3", "model": "MiniMax-M3", "engine": "vllm"}, 2048)
    assert "--block-size 128" in " ".join(plan.command)
    assert ("--attention-backend FLASH_ATTN" in " ".join(plan.command)) == asked


def test_a_fleets_own_flags_of_a_checkpoint_may_be_anything() -> None:
    """Its --block-size, for one: only a number that is large asks for other kernels."""
    entry = next(one for one in catalogue().checkpoints if one.repo == "MiniMaxAI/MiniMax-M3")
    changed = entry.model_copy(update={"engine_flags": {"vllm": {"--block-size": "auto"}}})
    own = replace(catalogue(), checkpoints=(changed,))
    rig = read_rig({"gpus": "8x B200", "host_memory_gib": 2048}, "g.py", own)
    (wanted,) = read_services({"chat": {"model": "MiniMax-M3", "engine": "vllm"}}, "g.py", rig)
    (outcome,) = decide_all([planning_request(rig, wanted, own, Lock(), "g.py")])
    assert "--attention-backend" not in plan_of(outcome, "group", ("host",)).command
