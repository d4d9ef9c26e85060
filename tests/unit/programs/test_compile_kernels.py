"""The program that compiles an engine's kernels, with a stand-in for FlashInfer's description of its modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rigup.programs import compile_kernels
from tests.lab.wheels import FLASHINFER

SAMPLING, TOPK, BROKEN = (f"flashinfer.jit.sampling:gen_{name}_module" for name in ("sampling", "topk", "broken"))


def compiled(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the program. folder: of FlashInfer, of its work, and of what is kept."""
    for path, text in FLASHINFER.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    program = [sys.executable, str(compile_kernels.__file__), "--keep", str(folder / "kept"), *words]
    environment = {**os.environ, "PYTHONPATH": str(folder), "FLASHINFER_WORKSPACE_BASE": str(folder / "work")}
    return subprocess.run(program, capture_output=True, text=True, env=environment)


def place(folder: Path, name: str) -> Path:
    """Where FlashInfer looks before it compiles."""
    return folder / f"flashinfer/data/aot/{name}/{name}.so"


def made_elsewhere(folder: Path, **libraries: str) -> Path:
    """A folder of a builder's libraries."""
    made = folder / "made"
    made.mkdir()
    for name, text in libraries.items():
        (made / f"{name}.so").write_text(text)
    return made


def test_a_library_is_put_where_flashinfer_looks_before_it_compiles_and_kept(tmp_path: Path) -> None:
    done = compiled(tmp_path, SAMPLING)
    assert done.stdout.splitlines() == ["compiling kernels 1/1: sampling", "sampling: 0 s"]
    assert place(tmp_path, "sampling").read_text().startswith("kernels ")
    assert place(tmp_path, "sampling").samefile(tmp_path / "kept/sampling.so")


def test_once_more_is_the_same(tmp_path: Path) -> None:
    assert compiled(tmp_path, SAMPLING).returncode == 0
    first = place(tmp_path, "sampling").read_text()
    assert compiled(tmp_path, SAMPLING).returncode == 0
    assert place(tmp_path, "sampling").read_text() == (tmp_path / "kept/sampling.so").read_text() != first
    assert [path.name for path in place(tmp_path, "sampling").parent.iterdir()] == ["sampling.so"]


def test_one_that_does_not_compile_ends_it_with_its_words(tmp_path: Path) -> None:
    done = compiled(tmp_path, BROKEN, SAMPLING)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", "no nvcc")
    assert not place(tmp_path, "sampling").exists()


def test_of_a_builders_libraries_those_asked_for_are_taken_and_what_it_lacks_is_compiled(tmp_path: Path) -> None:
    made = made_elsewhere(tmp_path, sampling="kernels of a builder", strange="#!/bin/sh")
    (made / "topk.so").mkdir()
    done = compiled(tmp_path, "--made", str(made), SAMPLING, TOPK)
    steps = ["taking kernels 1/2: sampling", "sampling: 0 s", "compiling kernels 2/2: topk", "topk: 0 s"]
    assert done.stdout.splitlines() == steps
    assert place(tmp_path, "sampling").read_text() == "kernels of a builder"
    assert place(tmp_path, "topk").read_text().startswith("kernels ")
    there = sorted(path.name for path in tmp_path.rglob("*.so") if made not in path.parents and path.is_file())
    assert there == ["sampling.so", "sampling.so", "topk.so", "topk.so", "topk.so"], "kept, in place, compiled"


def test_a_builders_libraries_are_loaded_and_nothing_is_written(tmp_path: Path) -> None:
    made = made_elsewhere(tmp_path, sampling="print('runs')", strange="text")
    done = compiled(tmp_path, "--made", str(made), "--load", TOPK, SAMPLING)
    assert done.stdout.splitlines() == ["loading kernels 2/2: sampling", "runs", "sampling: 0 s"]
    assert not (tmp_path / "kept").exists() and not place(tmp_path, "sampling").exists()

    (made / "topk.so").write_text("raise OSError('topk.so: invalid ELF header')")
    done = compiled(tmp_path, "--made", str(made), "--load", TOPK, SAMPLING)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "OSError: topk.so: invalid ELF header"
