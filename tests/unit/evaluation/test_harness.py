"""What the harness is told, what is kept of what it found, and when a difference is one."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.evaluation.comparison import ScoreDifference, compare, differing_conditions
from rigup.evaluation.harness import EvaluationRequest, how_far, read_output, tail, tasks_of, unknown_tasks

RAW = {
    "results": {
        "sums": {"name": "sums", "sample_len": 3, "exact_match,number": 2 / 3, "exact_match_stderr,number": 0.33}
    },
    "versions": {"sums": 1.0},
    "n-shot": {"sums": 0},
    "n-samples": {"sums": {"original": 40, "effective": 3}},
    "higher_is_better": {"sums": {"exact_match": True}},
    "task_hashes": {"sums": "abc"},
    "lm_eval_version": "0.4.13",
}
SAMPLES = [
    {"doc_id": 2, "filter": "number", "exact_match": 0.0},
    {"doc_id": 0, "filter": "number", "exact_match": 1.0},
    {"doc_id": 1, "filter": "number", "exact_match": 1.0},
    {"doc_id": 0, "filter": "none", "exact_match": 0.0},
]


def test_the_harness_is_told_all_of_it_but_the_key() -> None:
    wanted = EvaluationRequest(
        ("gsm8k", "mine"), 50, Path("tasks"), concurrency=4, few_shot=2, max_tokens=900, timeout_s=60
    )
    words = wanted.words("http://127.0.0.1:8000/v1/", "m2", Path("/out"))
    assert words[:6] == ["-I", "-m", "lm_eval", "run", "--model", "local-chat-completions"]
    given = dict(zip(words[6::2], words[7::2], strict=False))
    assert json.loads(given.pop("--model_args")) == {
        "base_url": "http://127.0.0.1:8000/v1/chat/completions",
        "model": "m2",
        "num_concurrent": 4,
        "max_retries": 3,
        "timeout": 60,
        "tokenized_requests": False,
        "tokenizer_backend": "none",
    }
    assert " ".join(words[8:]) == (
        "--tasks gsm8k,mine --seed 1234 --output_path /out --log_samples --apply_chat_template --limit 50 "
        f"--include_path {Path('tasks').resolve()} --num_fewshot 2 --gen_kwargs max_gen_toks=900"
    )


def test_prompts_as_they_are_have_no_template_and_all_questions_no_limit() -> None:
    words = EvaluationRequest(("gsm8k",), None, completions=True).words("http://a:1", "m", Path("/out"))
    assert words[5] == "local-completions"
    assert '"http://a:1/v1/completions"' in words[7]
    assert not {"--apply_chat_template", "--limit", "--include_path", "--num_fewshot", "--gen_kwargs"} & set(words)


def test_a_score_has_its_error_and_what_each_question_gave_in_order() -> None:
    assert tasks_of(RAW, {"sums": SAMPLES}) == {
        "sums": {
            "version": 1.0,
            "questions": 3,
            "digest": "abc",
            "few_shot": 0,
            "scores": [
                {
                    "metric": "exact_match",
                    "filter": "number",
                    "value": 2 / 3,
                    "stderr": 0.33,
                    "higher_is_better": True,
                    "each": [1.0, 1.0, 0.0],
                }
            ],
        }
    }


def test_what_does_not_add_up_to_the_score_is_not_a_score_of_each() -> None:
    one = {**SAMPLES[0], "exact_match": 1.0}
    for samples in ([one, *SAMPLES[1:]], [{**SAMPLES[0], "exact_match": [1, 2]}], []):
        assert tasks_of(RAW, {"sums": samples})["sums"]["scores"][0]["each"] == []


def test_a_group_and_an_error_that_is_not_there() -> None:
    raw = {"results": {"all": {"alias": "all", "acc,none": 0.5, "acc_stderr,none": "N/A"}}}
    (score,) = tasks_of(raw, {})["all"]["scores"]
    assert (score["value"], score["stderr"], score["higher_is_better"]) == (0.5, None, None)
    assert tasks_of(raw, {})["all"]["questions"] is None


def test_what_was_written_is_found_below_a_folder(tmp_path: Path) -> None:
    assert read_output(tmp_path) is None
    (tmp_path / "m").mkdir()
    (tmp_path / "m/results_2026-11-22T00-09-47.228307.json").write_text(json.dumps(RAW))
    lines = "".join(json.dumps(sample) + "\n" for sample in SAMPLES)
    (tmp_path / "m/samples_sums_2026-11-22T00-09-47.228307.jsonl").write_text(lines)
    (tmp_path / "m/samples_sums_more_2026-11-22T00-09-47.228307.jsonl").write_text("not this one\n")
    found = read_output(tmp_path)
    assert found is not None and found["rigup_tasks"] == tasks_of(RAW, {"sums": SAMPLES})


@pytest.mark.parametrize("answer", ["one\u2028two", "one\u2029two", "one\x85two", "one\x0ctwo", "50 \u20ac"])
def test_whatever_an_answer_holds_each_question_is_read(tmp_path: Path, answer: str) -> None:
    (tmp_path / "results_2026-11-22T00-09-47.228307.json").write_text(json.dumps(RAW))
    lines = "".join(json.dumps(sample | {"resps": [[answer]]}, ensure_ascii=False) + "\n" for sample in SAMPLES)
    (tmp_path / "samples_sums_2026-11-22T00-09-47.228307.jsonl").write_text(lines, encoding="utf-8")
    assert read_each(tmp_path) == [1.0, 1.0, 0.0]


def test_questions_that_cannot_be_read_cost_no_score(tmp_path: Path) -> None:
    (tmp_path / "results_2026-11-22T00-09-47.228307.json").write_text(json.dumps(RAW))
    (tmp_path / "samples_sums_2026-11-22T00-09-47.228307.jsonl").write_text(
        json.dumps(SAMPLES[0]) + '\n{"doc_id": 1, "fi'
    )
    assert read_each(tmp_path) == []


def read_each(folder: Path) -> list[float]:
    """What each question of the only score gave, whose value is as it was written."""
    found = read_output(folder)
    assert found is not None
    (score,) = found["rigup_tasks"]["sums"]["scores"]
    assert score["value"] == 2 / 3
    return list(score["each"])


LOG = (
    "\rRequesting API:   0%|          | 0/12 [00:00<?, ?it/s]\rRequesting API:  25%|██▌       | 3/12 [00:00<00:02, "
    '3.98it/s]\n    raise ValueError(f"Tasks not found: {missing}")\nValueError: Tasks not found: nosuch, other\n'
)


def test_how_far_it_is_and_what_it_does_not_know() -> None:
    assert how_far(LOG) == (3, 12)
    assert how_far("nothing yet") == (0, 0)
    assert unknown_tasks(LOG) == "nosuch, other"
    assert unknown_tasks('raise ValueError(f"Tasks not found: {missing}")') is None


def test_its_last_words_have_neither_bars_nor_the_key() -> None:
    log = "".join(f"line {n} sk-secret\n" for n in range(30)) + "\rRequesting API: 1%| | 1/2 [0:01<0:01, 1.0it/s]\n"
    lines = tail(log, "sk-secret").splitlines()
    assert (len(lines), lines[-1]) == (12, "    line 29 <api key>")


def result(each: list[float], digest: str = "abc", stderr: float | None = 0.1, **task: Any) -> dict[str, Any]:
    score = {
        "metric": "exact_match",
        "filter": "none",
        "value": sum(each) / len(each),
        "stderr": stderr,
        "higher_is_better": task.pop("higher_is_better", True),
        "each": each,
    }
    told = {"version": 1.0, "questions": len(each), "digest": digest, "few_shot": 0, **task}
    conditions = {"limit": None, "few_shot": None, "max_tokens": None, "prompts": "chat", "seed": 1234}
    return {"harness": "0.4.13", "conditions": conditions, "tasks": {"sums": {**told, "scores": [score]}}}


def compared(before: dict[str, Any], after: dict[str, Any]) -> ScoreDifference:
    (found,) = compare(before, after)
    return found


def test_the_same_questions_tell_apart_what_averages_do_not() -> None:
    before, after = [0.0] * 8 + [1.0] * 92, [1.0] * 100
    paired = compared(result(before), result(after))
    assert (paired.paired, paired.verdict, round(paired.change, 9)) == (True, "better", 0.08)
    assert paired.stderr == pytest.approx(math.sqrt(0.08 * 0.92 / 99))
    # other questions: the standard errors of both, 0.1414 together
    apart = compared(result(before), result(after, digest="other"))
    assert (apart.paired, apart.verdict) == (False, "no significant difference")
    assert apart.stderr == pytest.approx(math.hypot(0.1, 0.1))


@pytest.mark.parametrize(
    ("after", "values", "verdict", "why"),
    [
        ([0.0] * 20, {}, "worse", ""),
        ([0.0] * 20, {"higher_is_better": False}, "better", ""),
        ([1.0] * 20, {}, "no significant difference", ""),
        ([0.0] * 20, {"higher_is_better": None}, "unknown", "the task does not define whether higher is better"),
        ([0.0] * 20, {"version": 2.0}, "unknown", "task versions 1.0 and 2.0 differ"),
        ([0.0] * 20, {"digest": "", "stderr": None}, "unknown", "the harness reports no standard error"),
    ],
)
def test_verdicts(after: list[float], values: dict[str, Any], verdict: str, why: str) -> None:
    found = compared(result([1.0] * 20), result(after, **values))
    assert (found.verdict, found.why) == (verdict, why)


def test_nine_questions_say_nothing() -> None:
    found = compared(result([1.0] * 9), result([0.0] * 9))
    assert (found.verdict, found.why) == ("unknown", "9 questions are too few")


def test_what_is_not_in_both_is_not_compared() -> None:
    other = result([1.0] * 20)
    other["tasks"] = {"others": other["tasks"]["sums"]}
    assert compare(result([1.0] * 20), other) == []


def test_what_was_not_alike_is_named() -> None:
    before, after = result([1.0]), result([1.0])
    after["conditions"]["max_tokens"], after["harness"] = 16, "0.4.14"
    assert list(differing_conditions(before, after)) == [
        ("lm_eval", "0.4.13", "0.4.14"),
        ("max tokens", None, 16),
    ]


scores = st.lists(st.sampled_from([0.0, 1.0]), min_size=10, max_size=60)


@given(scores, st.booleans(), st.randoms())
def test_turned_round_a_difference_is_the_opposite(each: list[float], same: bool, random: Any) -> None:
    other = [value if random.random() < 0.7 else 1 - value for value in each]
    before, after = result(each), result(other, digest="abc" if same else "other")
    there, back = compared(before, after), compared(after, before)
    assert there.change == pytest.approx(-back.change)
    assert there.stderr == pytest.approx(back.stderr)
    opposite = {"better": "worse", "worse": "better"}
    assert back.verdict == opposite.get(there.verdict, there.verdict)
    assert compared(before, before).verdict == "no significant difference"
