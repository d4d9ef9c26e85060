"""Every benchmark still runs to its end, in its smallest form (benchmarks/smallest.py), and prints its rows.

No figure counts. Stand-ins: rolling.py and llama_cpp_versions.py compile the tests' engine instead of llama.cpp,
first_start.py serves with the tests' vLLM, and cuda_compile.py gets programs that stand for CMake and Ninja, so that
nothing is compiled. Contenders that would have to be installed are left out: Ansible, nginx, vLLM's own benchmark.
rolling.py, noop.py and first_apply.py leave out what takes minutes: drivers, a host without power.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet

from benchmarks.checked_change import CHANGES, Change

ROOT = Path(__file__).parents[2]
BENCHMARKS = "benchmarks"
LISTS = "src/rigup/lockfile/package_lists.py"


class Form(NamedTuple):
    """A benchmark and its words beside --smallest; FOLDER is a new one.

    rows: what rows of its table begin with. subjects: what it measures (tests/subjects.py).
    """

    program: str
    words: str
    rows: tuple[str, ...]
    subjects: tuple[str, ...]
    lab: bool = False


FORMS = (
    Form(
        "checked_change",
        "",
        ("| nothing |", "| a reworded hint |", "| a function of the planner", "| the role of the driver |"),
        ("bin/test",),
    ),
    Form(
        "plan", "", ("import", "example systems", "100 hosts in 100 groups", "58 models on 8x H200"), ("the planner",)
    ),
    Form("gateway", "", ('{"gateway": "haproxy", "stop": "told", "hold": 0, "requests": ',), ("gateways",)),
    Form("gateway", "--latency", ('{"gateway": "haproxy", "stop": "told", "hold": 0, "direct_ms": ',), ("gateways",)),
    Form("gateway", "--many", ('{"gateway": "haproxy", "stop": "told", "hold": 0, "mib": ',), ("gateways",)),
    Form("llama_cpp_versions", "b11434", ("llama.cpp b11434: llama-server of ",), ("builds from source", LISTS)),
    Form(
        "first_start",
        "",
        ("| first |", "| second |", "| after an upgrade |", "| after a rollback |"),
        ("environments",),
    ),
    Form(
        "weights",
        "--single",
        ("| curl --parallel |", "| rigup |", "| hf download |", "| curl, then one hash of all |"),
        ("weights",),
    ),
    Form(
        "cuda_compile",
        "/usr/local/cuda",
        ("| the rig's architecture (RTX 3090) |", "| upstream's default arch"),
        ("builds from source",),
    ),
    Form("gpu_pack", "FOLDER", ("FOLDER: ",), ("bin/gpu-check",)),
    Form(
        "weights",
        "",
        ("| one host by itself |", "| 2 hosts, shared |", "| 2 hosts, each from the hub |"),
        ("the run", "weights"),
        lab=True,
    ),
    Form(
        "first_day",
        "",
        ("| install |", "| what fits |", "| machines |", "| lab down |"),
        ("the run", "drift and status", "locking"),
        lab=True,
    ),
    Form("noop", "--rtt 2", ("| ssh |", "| rigup |", "| pyinfra -y |", "| pyinfra |"), ("the run",), lab=True),
    Form("noop", "--first", ("| ssh |", "| rigup |", "| pyinfra -y |", "| pyinfra |"), ("the run",), lab=True),
    Form(
        "noop",
        "--fleet 10",
        ("| diff | 1 |", "| diff | 10 |", "| status | 1 |", "| status | 10 |"),
        ("the run", "drift and status"),
        lab=True,
    ),
    Form("first_apply", "", ("| in turn |",), ("the run",), lab=True),
    Form(
        "rolling",
        "",
        (
            "First word, ",
            "| another release, `apply --rolling 1` |",
            "| `rigup rollback` |",
            "| llama.cpp b11401 to b11434, `apply --rolling 1` |",
            "| the only gateway is killed |",
            "| plain `systemctl restart`, host by host |",
        ),
        ("the run", "gateways", "rollback", "rollouts", LISTS),
        lab=True,
    ),
)
ELSEWHERE = {
    "bench_client": "tests/slow/test_bench_client.py",
    "gpu_check": "tests/unit/test_gpu_check.py",  # and tests/lab/driver/test_whole_gpu_check.py, with the lab's cards
    "gpu_engine": "tests/unit/test_gpu_engine.py",
    "gpu_engine_pack": "tests/unit/test_gpu_engine.py",  # but for the packages, which are 9 GB
    "gpu_moe": "tests/lab/driver/test_whole_gpu_check.py",  # as far as to say that there is no torch
    "rolling_client": f"{BENCHMARKS}/rolling.py",  # which runs it on a machine
}
"""What runs the others, as far as they go without a GPU."""

MAIN = re.compile(r'^if __name__ == "__main__":', re.MULTILINE)
SECONDS = 1500
# What stands for CMake and Ninja: there are three CUDA sources, and each is compiled at once.
PROGRAMS = {
    "cmake": "#!/bin/sh\n",
    "ninja": '#!/bin/sh\n[ "$3" != -t ] || printf "%s.cu.o: CUDA\\n" acc add argmax\n',
}


def module_of(name: str) -> str:
    """Where it begins, from the root."""
    path = f"{BENCHMARKS}/{name}.py"
    return path if (ROOT / path).exists() else f"{BENCHMARKS}/{name}/__main__.py"


def program_of(name: str) -> list[str]:
    """How docs/performance.md types it."""
    script = ROOT / module_of(name)
    return [str(script)] if "sys.path.insert" in script.read_text() else ["-m", f"{BENCHMARKS}.{name}"]


def parameters(form: Form) -> ParameterSet:
    """It rests on its own module, with what that imports, and on what it measures."""
    marks = [pytest.mark.rests_on(module_of(form.program), *form.subjects), *([pytest.mark.lab] if form.lab else [])]
    return pytest.param(form, id=f"{form.program} {form.words}".strip(), marks=marks)


def test_every_benchmark_has_a_row() -> None:
    sources = (ROOT / BENCHMARKS).rglob("*.py")
    programs = [path for path in sources if MAIN.search(path.read_text())]
    names = {path.stem if path.parent.name == BENCHMARKS else path.parent.name for path in programs}
    assert names == {form.program for form in FORMS} | set(ELSEWHERE)
    for name, runs_it in ELSEWHERE.items():
        assert re.search(name.replace("_", "[_-]"), (ROOT / runs_it).read_text()), f"{runs_it} does not name {name}"


@pytest.mark.parametrize(
    "change", [change for change in CHANGES.values() if change.file], ids=lambda change: change.what
)
def test_what_a_measured_change_replaces_is_there(change: Change) -> None:
    text = (ROOT / change.file).read_text()
    assert text.count(change.was) + text.count(change.becomes) == 1, "also while the change is measured"


@pytest.mark.slow
@pytest.mark.parametrize("form", [parameters(form) for form in FORMS])
def test_its_smallest_form_runs_to_its_end(form: Form, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if form.lab:
        request.getfixturevalue("labs_can_run")
    environment = dict(os.environ)
    if form.program == "cuda_compile":
        for name, text in PROGRAMS.items():
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    folder = str(tmp_path / "folder")
    words = form.words.replace("FOLDER", folder).split()
    process = subprocess.Popen(
        [sys.executable, *program_of(form.program), *words, "--smallest"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        if process.poll() is None:  # it takes its machines down
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    for row in form.rows:
        begun = re.escape(row.replace("FOLDER", folder))
        assert re.search(rf"^{begun}.*\d", out, re.MULTILINE), f"{row}\n{out}"
