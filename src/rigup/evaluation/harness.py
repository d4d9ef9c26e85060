"""The argv of the evaluation harness and the parsing of its results. Pure.

Source: lm_eval 0.4.13: _cli/run.py, models/openai_completions.py, loggers/evaluation_tracker.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = 1
SEED = 1234
PATHS = {False: "/v1/chat/completions", True: "/v1/completions"}
MODELS = {False: "local-chat-completions", True: "local-completions"}
KEY_VARIABLE = "OPENAI_API_KEY"
RETRIES = 3
TAIL_LINES = 12

_UNKNOWN_TASKS = re.compile(r"^ValueError: Tasks not found: (.+)$", re.MULTILINE)
_COUNTED = re.compile(r"Requesting API: +\d+%.*?(\d+)/(\d+)")
_STDERR = "_stderr"


@dataclass(frozen=True)
class EvaluationRequest:
    """The parameters of an evaluation. limit: questions per task, None for all. include: a folder with custom tasks.

    completions: send prompts without the model's chat template. few_shot: examples before each question, None for the
    task's default. max_tokens: of an answer, None for the task's default.
    """

    tasks: tuple[str, ...]
    limit: int | None
    include: Path | None = None
    completions: bool = False
    concurrency: int = 8
    few_shot: int | None = None
    max_tokens: int | None = None
    timeout_s: int = 600

    def words(self, url: str, model: str, output: Path) -> list[str]:
        """The harness's argv after Python. url: of the endpoint, without a path. It does not contain the key."""
        arguments = {
            "base_url": url.rstrip("/").removesuffix("/v1") + PATHS[self.completions],
            "model": model,
            "num_concurrent": self.concurrency,
            "max_retries": RETRIES,
            "timeout": self.timeout_s,
            "tokenized_requests": False,
            "tokenizer_backend": "none",
        }
        words = ["-I", "-m", "lm_eval", "run", "--model", MODELS[self.completions]]
        words += ["--model_args", json.dumps(arguments), "--tasks", ",".join(self.tasks), "--seed", str(SEED)]
        words += ["--output_path", str(output), "--log_samples"]
        words += [] if self.completions else ["--apply_chat_template"]
        words += [] if self.limit is None else ["--limit", str(self.limit)]
        words += [] if self.include is None else ["--include_path", str(self.include.resolve())]
        words += [] if self.few_shot is None else ["--num_fewshot", str(self.few_shot)]
        words += [] if self.max_tokens is None else ["--gen_kwargs", f"max_gen_toks={self.max_tokens}"]
        return words

    def conditions(self) -> dict[str, Any]:
        """The conditions that must match for two results to be comparable."""
        return {
            "limit": self.limit,
            "few_shot": self.few_shot,
            "max_tokens": self.max_tokens,
            "prompts": "completions" if self.completions else "chat",
            "seed": SEED,
        }


def how_far(log: str) -> tuple[int, int]:
    """Answered and total requests; (0, 0) before the first."""
    counted = _COUNTED.findall(log)
    return (int(counted[-1][0]), int(counted[-1][1])) if counted else (0, 0)


def unknown_tasks(log: str) -> str | None:
    """The unknown tasks, if they are why the harness failed."""
    found = _UNKNOWN_TASKS.search(log)
    return found[1].strip() if found else None


def tail(log: str, secret: str | None) -> str:
    """The last lines of the harness's output, without progress bars and without the key."""
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", log) if line.strip() and "it/s]" not in line]
    text = "\n".join(f"    {line}" for line in lines[-TAIL_LINES:])
    return text.replace(secret, "<api key>") if secret else text


def tasks_of(raw: dict[str, Any], samples: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Scores by task, from the harness's results and its log of each question.

    Each task has `version`, `questions` (None for a group of tasks), `digest` (equal for the same questions),
    `few_shot`, and `scores`: `metric`, `filter`, `value`, `stderr`, `higher_is_better`, and `each` (one number per
    question in the task's order, [] if their mean is not the score).
    """
    found = {}
    for task, scores in raw["results"].items():
        better = (raw.get("higher_is_better") or {}).get(task) or {}
        found[task] = {
            "version": (raw.get("versions") or {}).get(task),
            "questions": ((raw.get("n-samples") or {}).get(task) or {}).get("effective"),
            "digest": (raw.get("task_hashes") or {}).get(task),
            "few_shot": (raw.get("n-shot") or {}).get(task),
            "scores": list(_scores(scores, better, samples.get(task, []))),
        }
    return found


def _scores(scores: dict[str, Any], better: dict[str, Any], samples: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for key, value in scores.items():
        metric, comma, kind = key.partition(",")
        if not comma or metric.endswith(_STDERR) or not isinstance(value, int | float):
            continue
        stderr = scores.get(f"{metric}{_STDERR},{kind}")
        yield {
            "metric": metric,
            "filter": kind,
            "value": float(value),
            "stderr": float(stderr) if isinstance(stderr, int | float) else None,
            "higher_is_better": better.get(metric),
            "each": _each(samples, metric, kind, float(value)),
        }


def _each(samples: list[dict[str, Any]], metric: str, kind: str, value: float) -> list[float]:
    """The score of each question; [] if the metric is not the mean of its questions."""
    own = sorted((s for s in samples if s.get("filter") == kind and metric in s), key=lambda s: int(s["doc_id"]))
    figures = [s[metric] for s in own]
    if not figures or not all(isinstance(figure, int | float) for figure in figures):
        return []
    numbers = [float(figure) for figure in figures]
    return numbers if abs(sum(numbers) / len(numbers) - value) < 1e-6 else []


def read_output(folder: Path) -> dict[str, Any] | None:
    """The harness's output below a folder: its results, with `rigup_tasks` added; None if there are none."""
    written = sorted(folder.rglob("results_*.json"))
    if not written:
        return None
    raw: dict[str, Any] = json.loads(written[-1].read_text(encoding="utf-8"))
    samples = {task: _samples(folder, task) for task in raw.get("results", {})}
    return raw | {"rigup_tasks": tasks_of(raw, samples)}


def _samples(folder: Path, task: str) -> list[dict[str, Any]]:
    """The harness's log of each question; [] if it is unreadable: the scores are useful without it."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.rglob(f"samples_{task}_2*.jsonl")):
        try:
            # answers may contain characters such as U+2028, at which splitlines would split
            found += [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        except ValueError:
            return []
    return found
