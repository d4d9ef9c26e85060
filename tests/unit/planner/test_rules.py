"""All rules together."""

from __future__ import annotations

from pathlib import Path

from rigup.planner.rules import RULES, check, refusals
from tests.unit.planner.rules.builder import MAX_Q, candidate

FP8 = "MiniMaxAI/MiniMax-M2.5"
DOCUMENT = Path(__file__).parents[3] / "docs" / "rules.md"


def test_ids_are_unique_and_every_rule_says_what_it_guards_and_why() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.about.endswith("."), rule.id
        assert rule.source, rule.id


def test_every_rule_is_documented() -> None:
    lines = DOCUMENT.read_text().splitlines()
    for rule in RULES:
        assert f"| `{rule.id}` | {rule.about.rstrip('.')} | {rule.source} |" in lines


def test_all_violations_are_reported_together() -> None:
    asked = candidate(
        f"5x {MAX_Q}", FP8, parallel={"tensor": 5}, context=500_000, kv_cache_type="q8_0", service={"flags": {"--x": 1}}
    )
    found = {finding.rule for finding in refusals(asked)}
    assert {"tensor-parallel-heads", "fp8-block", "context-limit", "kv-cache-type", "unknown-option"} <= found


def test_a_silenced_rule_says_nothing_and_is_listed() -> None:
    sizes = {"tensor": 8}
    loud = check(candidate(f"8x {MAX_Q}", FP8, parallel=sizes))
    quiet = check(candidate(f"8x {MAX_Q}", FP8, parallel=sizes, service={"allow": ["fp8-block", "driver-floor"]}))
    assert "fp8-block" in {finding.rule for finding in loud.refusals}
    assert "driver-floor" in {finding.rule for finding in loud.warnings}
    assert {finding.rule for finding in (*quiet.refusals, *quiet.warnings)}.isdisjoint({"fp8-block", "driver-floor"})
    assert quiet.silenced == ("fp8-block", "driver-floor")


def test_a_rule_that_has_nothing_to_say_is_not_listed_as_silenced() -> None:
    assert check(candidate("4x H200", FP8, parallel={"tensor": 4}, service={"allow": ["fp8-block"]})).silenced == ()


def test_a_misspelt_rule_is_pointed_out() -> None:
    found = check(candidate("4x H200", FP8, parallel={"tensor": 4}, service={"allow": ["fp8-blok"]}))
    (finding,) = (finding for finding in found.warnings if finding.rule == "unknown-rule")
    assert finding.hint == 'try "fp8-block"'


def test_findings_carry_their_source() -> None:
    for finding in refusals(candidate(f"8x {MAX_Q}", FP8, parallel={"tensor": 8})):
        assert finding.source
