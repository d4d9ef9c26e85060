"""`rigup schema`, and documents of verbs that need hosts; conftest.py checks those of all other tests here."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from rigup.bench.comparison import FigureChange
from rigup.cli import releases, status
from rigup.cli.main import VERBS, build_parser, main
from rigup.cli.output import bench, evaluation
from rigup.cli.output import results as summary
from rigup.cli.output.json_documents.runs import SharedWeights
from rigup.cli.schema.documents import DIALECT, DOCUMENTS, adapter_of, schema_of
from rigup.errors import HostFailed
from rigup.evaluation.comparison import ScoreDifference
from rigup.facts.probe import Nvidia
from rigup.operations.service.answer import Answer
from rigup.operations.service.history import RetainedRelease
from rigup.run.result import Change, HostResult
from tests.documents import check
from tests.unit.cli.output.test_weights_shares import TALLY
from tests.unit.cli.test_status import planned, result_of, row
from tests.unit.run.gateways.test_status import seen

GATEWAYS = Path(__file__).parents[2] / "golden/gateways"


def a_host() -> HostResult:
    """A host with everything that a result can have."""
    found = HostResult("gpu1", changes=[Change("service", "release of chat")], seconds=1.25)
    found.answers.append(Answer("gpu1", "chat", "Paris.", 4, 0.5, 8.0))
    found.fail("failed", HostFailed("gpu1: chat: health check failed", "rigup report gpu1"))
    return found


def with_drift() -> dict[str, Any]:
    found = summary.as_json([a_host()])
    found["hosts"][0]["drift"] = [{"what": "driver", "message": "570.133.20", "service": "", "hint": ""}]
    return found


def of_status() -> dict[str, Any]:
    plan = planned([])
    result = result_of(plan, Nvidia())
    rows = [row(result, plan) | {"memory": [], "moe_config": None}]
    return status.status_as_json(rows, [result, a_host()], [seen()])


KEPT = (
    RetainedRelease("chat", 1, 1_795_000_000, False, True, {"build": "a", "command": ["x"]}),
    RetainedRelease("chat", 2, 1_795_100_000, True, True, {"build": "b", "command": ["x"]}, before=1),
)
ROLLOUT = {
    **{"rolling": 2, "max_failures": 0, "batches": [["a"], ["b"]], "done": ["a"], "failed": {"b": "no answer"}},
    **{"not_begun": ["c"], "not_kept": None, "next": "rigup apply --rolling 2 --resume"},
}
PRINTED: dict[str, Any] = {
    "apply": lambda: summary.as_json([a_host()]) | {"weights": [SharedWeights.of(TALLY)], "rollout": ROLLOUT},
    "diff": with_drift,
    "rollback": lambda: summary.as_json([a_host()]),
    "status": of_status,
    "releases": lambda: {
        "schema": 1,
        "hosts": {"a": {"chat": releases._json(KEPT)}},
        "errors": releases._errors([a_host()]),
    },
    "bench": lambda: bench.changes_as_json(
        [FigureChange(1, 256, 100, "ttft_ms p99", 1.0, 2.0, 100.0, None, "unknown")], [("context", 4096, 8192)]
    ),
    "eval": lambda: evaluation.differences_as_json(
        [ScoreDifference("gsm8k", "exact_match", "strict", 0.5, 0.75, 0.25, 0.1, True, 40, "better")], [("limit", 5, 6)]
    ),
}


@pytest.mark.parametrize("verb", PRINTED)
def test_documents_of_verbs_that_need_hosts(verb: str) -> None:
    check(verb, json.dumps(PRINTED[verb]()))


@pytest.mark.parametrize("name", ["one_box", "with_tls", "fleet"])
def test_gateways_of_a_plan(name: str) -> None:
    gateway = json.loads((GATEWAYS / f"{name}.json").read_text())
    check("plan", json.dumps({"schema": 1, "hosts": [], "idle": [], "gateways": [gateway], "disabled": []}))


def test_every_verb_with_json_has_a_schema() -> None:
    with_json = set()
    for verb in VERBS:
        (verbs,) = (action for action in build_parser(verb)._actions if action.dest == "verb")
        parsers = [verbs.choices[verb]]
        for parser in parsers:
            parsers += [each for action in parser._actions if isinstance(action, argparse._SubParsersAction)
                        for each in action.choices.values()]  # fmt: skip
        if any("--json" in parser._option_string_actions for parser in parsers):
            with_json.add(verb)
    assert with_json == set(DOCUMENTS)


@pytest.mark.parametrize(
    "wrong", [{}, {"schema": 1}, {"schema": 2, "hosts": []}, {"schema": 1, "hosts": [{"host": "a"}]}, []]
)
def test_another_document_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="validation error"):
        adapter_of("apply").validate_python(wrong)


def test_the_schema_says_which_keys_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "apply"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == schema_of("apply")
    assert printed["$schema"] == DIALECT
    host = printed["$defs"]["HostOutcome"]
    assert set(host["required"]) == {
        "host",
        "state",
        "changes",
        "errors",
        "answers",
        "seconds",
        "estimated_seconds",
        "steps",
    }
    assert "description" in host and "additionalProperties" not in host


def test_all_schemas_at_once_and_a_verb_without(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(DOCUMENTS)
    assert main(["schema", "plna"]) == 2
    assert capsys.readouterr().err == 'rigup: VERB: "plna" has no --json\nhint: try "plan"\n'
