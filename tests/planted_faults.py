"""Thirty one-line faults in what acts: each that the whole run finds, the selected run must find.

`python -m tests.planted_faults draw` draws them by SEED from the statements of FOLDERS and prints FAULTS. `plant N`
writes one into the checkout, `take-back` restores the files. `try N...` plants each in turn and runs what `.ci/run`
would select; where that finds nothing, the rest of the tests on machines runs, too, and finding something then fails.
"""

from __future__ import annotations

import ast
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = ("roles", "src/rigup/operations", "src/rigup/programs", "src/rigup/connection", "src/rigup/run")
SEED, NUMBER = 28, 30
CHECK = ("bin/test", "-x")
SELECTED = ("bin/test", "--rest", "-x")
WHOLE = ("bin/test", "--all", "-x")


class Fault(NamedTuple):
    """A line of a file, by its number when it was drawn, and what stands there instead."""

    path: str
    line: int
    was: str
    becomes: str


FAULTS: tuple[Fault, ...] = (
    Fault(
        path="src/rigup/connection/fact_cache.py",
        line=68,
        was="arguments |= {key: arguments.get(key) or value for key, value in alone.items()}",
        becomes="pass",
    ),
    Fault(path="src/rigup/operations/apt/commands.py", line=107, was='return ""', becomes="return None"),
    Fault(path="src/rigup/operations/builds/source.py", line=261, was="return False", becomes="return None"),
    Fault(
        path="src/rigup/operations/driver/packages.py",
        line=117,
        was="there = commands.versions(host, before)",
        becomes="there = None",
    ),
    Fault(
        path="src/rigup/operations/gateway/admin.py",
        line=85,
        was="return tuple(name for name in taken_out(answers[1]) if name not in drained) if len(answers) > 1 else ()",
        becomes="return None",
    ),
    Fault(
        path="src/rigup/operations/gateway/shared_address.py",
        line=66,
        was="if running and _unit_of(earlier) == _unit_of(unit):",
        becomes="if not (running and _unit_of(earlier) == _unit_of(unit)):",
    ),
    Fault(
        path="src/rigup/operations/monitoring.py",
        line=43,
        was="host.noop(f\"{', '.join(versions)} are installed\")",
        becomes="pass",
    ),
    Fault(
        path="src/rigup/operations/monitoring.py",
        line=46,
        was="source.refuse_unclear(host.name, source.read(host))",
        becomes="pass",
    ),
    Fault(
        path="src/rigup/operations/multinode/barrier.py",
        line=44,
        was="self._values.setdefault(step, {}).setdefault(host, what)",
        becomes="pass",
    ),
    Fault(
        path="src/rigup/operations/multinode/releases.py",
        line=80,
        was="return {name: _newest(state, digest) for name, state in states.items()}",
        becomes="return None",
    ),
    Fault(path="src/rigup/operations/primitives/jobs.py", line=248, was="return now", becomes="return None"),
    Fault(
        path="src/rigup/operations/primitives/steps.py",
        line=39,
        was="failure = state_of(host, _LastError)",
        becomes="failure = None",
    ),
    Fault(path="src/rigup/operations/service/gpu_binding.py", line=97, was="return {}", becomes="return None"),
    Fault(path="src/rigup/operations/service/history.py", line=207, was='flag = ""', becomes="flag = None"),
    Fault(
        path="src/rigup/operations/service/releases.py",
        line=206,
        was='staged = f"{folder}/releases/.{number}"',
        becomes="staged = None",
    ),
    Fault(
        path="src/rigup/operations/service/releases.py",
        line=320,
        was='return HostFailed(also, getattr(second, "hint", None) or hint)',
        becomes="return None",
    ),
    Fault(
        path="src/rigup/operations/weights/checkpoint.py",
        line=93,
        was='unit = layout.job_unit("weights", f"{revision}-{key}")',
        becomes="unit = None",
    ),
    Fault(
        path="src/rigup/operations/weights/line_speed.py",
        line=33,
        was="if checkpoint.location:",
        becomes="if not (checkpoint.location):",
    ),
    Fault(path="src/rigup/programs/bench/multiply_matrices.py", line=56, was="ready.wait()", becomes="pass"),
    Fault(
        path="src/rigup/programs/probe_gpus.py",
        line=100,
        was="if not select.select([pipe], [], [], limit)[0]:",
        becomes="if not (not select.select([pipe], [], [], limit)[0]):",
    ),
    Fault(
        path="src/rigup/programs/ray_node.py",
        line=74,
        was="nodes = self._client.get_all_node_info(timeout=ASK_SECONDS).values()",
        becomes="nodes = None",
    ),
    Fault(path="src/rigup/programs/run_together.py", line=133, was="self.got += some", becomes="pass"),
    Fault(path="src/rigup/programs/run_together.py", line=213, was="self._drop(list(self.peers))", becomes="pass"),
    Fault(
        path="src/rigup/programs/weights/fetch_weights.py", line=359, was="now = time.monotonic()", becomes="now = None"
    ),
    Fault(
        path="src/rigup/run/chains/timing.py",
        line=62,
        was="if span.began <= down and up <= span.ended:",
        becomes="if not (span.began <= down and up <= span.ended):",
    ),
    Fault(
        path="src/rigup/run/drift.py", line=164, was='if key == "checkpoint":', becomes="if not (key == 'checkpoint'):"
    ),
    Fault(
        path="src/rigup/run/measured_memory.py",
        line=49,
        was="if probe is not None and plan.memory:",
        becomes="if not (probe is not None and plan.memory):",
    ),
    Fault(path="src/rigup/run/runner.py", line=200, was="return undisturbed", becomes="return None"),
    Fault(path="src/rigup/run/services/chat.py", line=145, was='usage = content.get("usage")', becomes="usage = None"),
    Fault(
        path="src/rigup/run/weights/distribution.py",
        line=252,
        was="if served and other not in answering.get(name, ()):",
        becomes="if not (served and other not in answering.get(name, ())):",
    ),
)


def draw() -> list[Fault]:
    """NUMBER faults, by SEED, of the checkout as it is."""
    every = [fault for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) for fault in _faults(path)]
    return sorted(random.Random(SEED).sample(every, NUMBER))


def _faults(path: Path) -> Iterator[Fault]:
    """One for each statement of a function that stands on one line and can go wrong there."""
    text = path.read_text()
    lines = text.splitlines()
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in (inner for part in function.body for inner in ast.walk(part)):
                if isinstance(statement, ast.stmt) and (becomes := _wrong(statement)):
                    was = lines[statement.lineno - 1]
                    if was.lstrip().startswith(("elif", "with")) or (
                        was.count(":") > 1 and isinstance(statement, ast.If)
                    ):
                        continue
                    yield Fault(str(path.relative_to(ROOT)), statement.lineno, was.strip(), becomes)


def _wrong(statement: ast.stmt) -> str:
    """What the line becomes; "" where it is left alone."""
    if isinstance(statement, ast.If | ast.While):
        one_line = statement.test.end_lineno == statement.lineno
        word = "if" if isinstance(statement, ast.If) else "while"
        return f"{word} not ({ast.unparse(statement.test)}):" if one_line else ""
    if statement.end_lineno != statement.lineno:
        return ""
    match statement:
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            return "return None"
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign():
            return "pass"
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.expr()):
            return f"{name} = None"
    return ""


def plant(fault: Fault) -> None:
    """Writes it into the checkout. Fails where the line is no longer there."""
    path = ROOT / fault.path
    lines = path.read_text().splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines) if line.strip() == fault.was]
    assert numbers, f"{fault.path}: no longer has the line {fault.was!r}: draw again"
    number = min(numbers, key=lambda found: abs(found - fault.line))
    lines[number] = lines[number].replace(fault.was, fault.becomes)
    path.write_text("".join(lines))


def take_back() -> None:
    """Restores the files of every fault."""
    subprocess.run(["git", "checkout", "--", *FOLDERS], cwd=ROOT, check=True)


def found_by(words: tuple[str, ...]) -> bool:
    """Whether a run fails."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        print("\n".join(line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))))
        if "FAILED" not in done.stdout:
            print(done.stdout[-800:] + done.stderr[-800:])
    return done.returncode != 0


def try_out(number: int) -> bool:
    """Whether the selected run finds a fault, or not even the whole one does."""
    fault = FAULTS[number]
    print(f"{number}: {fault.path}: {fault.was} -> {fault.becomes}", flush=True)
    plant(fault)
    try:
        for words in (CHECK, SELECTED):
            if found_by(words):
                print(f"{number}: found by {' '.join(words)}", flush=True)
                return True
        missed = found_by(WHOLE)
        print(
            f"{number}: {'MISSED by the selected run' if missed else 'not found by the whole run either'}", flush=True
        )
        return not missed
    finally:
        take_back()


def main(words: list[str]) -> int:
    """draw, plant N, take-back, or try N..."""
    match words:
        case ["draw"]:
            for fault in draw():
                print(f"    {fault!r},")
        case ["plant", number]:
            plant(FAULTS[int(number)])
        case ["take-back"]:
            take_back()
        case ["try", *numbers]:
            return 0 if all([try_out(int(number)) for number in numbers or range(len(FAULTS))]) else 1
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
