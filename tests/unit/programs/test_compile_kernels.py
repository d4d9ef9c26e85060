"""The program that compiles an engine's kernels, with a module that stands for FlashInfer's description of one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rigup.programs import compile_kernels

STAND_IN = """\
import pathlib
here = pathlib.Path(__file__).parent
class Spec:
    name = "sampling"
    jit_library_path = here / "built/sampling.so"
    aot_path = here / "data/aot/sampling/sampling.so"
    def build(self, verbose):
        self.jit_library_path.parent.mkdir()
        self.jit_library_path.write_text("kernels")
def gen_sampling_module():
    return Spec()
def gen_broken_module():
    raise SystemExit("no nvcc")
"""


def compiled(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    (folder / "stand_in.py").write_text(STAND_IN)
    words = [sys.executable, str(compile_kernels.__file__), *names]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(words, capture_output=True, text=True, env=environment)


def test_a_library_is_put_where_flashinfer_looks_before_it_compiles(tmp_path: Path) -> None:
    done = compiled(tmp_path, "stand_in:gen_sampling_module")
    assert done.stdout.splitlines() == ["compiling kernels 1/1: sampling", "sampling: 0 s"]
    assert (tmp_path / "data/aot/sampling/sampling.so").read_text() == "kernels"


def test_one_that_does_not_compile_ends_it_with_its_words(tmp_path: Path) -> None:
    done = compiled(tmp_path, "stand_in:gen_broken_module", "stand_in:gen_sampling_module")
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", "no nvcc")
    assert not (tmp_path / "data").exists()
