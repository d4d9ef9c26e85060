"""No fast test asserts how long something took: on a busy machine seconds pass in which nobody works.

Complexity is held by counting, or by processor time (tests.hostile.bounded); what must not wait is shown with a wait
that would not end (tests.hostile.ends). A loop may have a deadline: `assert time.monotonic() < deadline`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"}


def offenders(text: str) -> Iterator[int]:
    """The line of each assertion of a module that reads a clock, or compares a difference of its readings."""
    for function in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)):
        moments, spans = _names(function)
        loops = [node for node in ast.walk(function) if isinstance(node, ast.While)]
        repeated = {part for loop in loops for part in ast.walk(loop) if isinstance(part, ast.Assert)}
        for node in ast.walk(function):
            if isinstance(node, ast.Assert):
                compares = _has_difference(node.test, moments) or _mentions(node.test, spans)
                if compares or (_reads_clock(node.test) and node not in repeated):
                    yield node.lineno


def _names(function: ast.FunctionDef) -> tuple[set[str], set[str]]:
    """What a function calls its readings of clocks, and the differences of those, alone or in lists."""
    moments: set[str] = set()
    spans: set[str] = set()
    for _ in range(2):  # a loop may use what is assigned further down
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                if _has_difference(node.value, moments):
                    spans |= names
                elif isinstance(node.value, ast.Call) and _reads_clock(node.value):
                    moments |= names
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "append":
                into = getattr(node.func, "value", None)
                if isinstance(into, ast.Name) and _has_difference(node.args[0], moments):
                    spans.add(into.id)
    return moments, spans


def _has_difference(value: ast.expr, moments: set[str]) -> bool:
    differences = [node for node in ast.walk(value) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)]
    return any(_reads_clock(each) or _mentions(each, moments) for each in differences)


def _mentions(value: ast.expr, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(value))


def _reads_clock(value: ast.expr) -> bool:
    called = [node.func for node in ast.walk(value) if isinstance(node, ast.Call) and not node.args]
    return any(getattr(each, "attr", getattr(each, "id", "")) in CLOCKS for each in called)


def test_no_fast_test_asserts_on_the_wall_clock() -> None:
    files = [path for folder in ("unit", "golden") for path in sorted((ROOT / "tests" / folder).rglob("*.py"))]
    texts = ((path, path.read_text()) for path in files)
    reading = [(path, text) for path, text in texts if any(f"{clock}(" in text for clock in CLOCKS)]
    found = [f"{path.relative_to(ROOT)}:{line}" for path, text in reading for line in offenders(text)]
    assert found == []


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("began = time.monotonic(); work(); assert time.monotonic() - began < 5", 1),
        ("began = perf_counter(); work(); took = perf_counter() - began; assert 1 < took < 5", 1),
        ("began = time.time(); work(); end = time.time(); assert end - began < 5", 1),
        ("began = time.monotonic(); took.append(time.monotonic() - began); assert min(took) < 5", 1),
        ("latest = time.monotonic() + 5; work(); assert time.monotonic() < latest", 1),
        ("now = time.time(); assert now < certificate.end <= now + 86_400", 0),
        ("began = time.process_time(); work(); assert time.process_time() - began < 5", 0),
        ("deadline = time.monotonic() + 60\n    while not ready():\n        assert time.monotonic() < deadline", 0),
    ],
)
def test_assertions_on_the_wall_clock_are_found(body: str, found: int) -> None:
    assert len(list(offenders(f"def test() -> None:\n    {body}\n"))) == found
