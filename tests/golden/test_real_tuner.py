"""vLLM's own tuner out of its sdist, run with rigup's stand-in for Ray: everything of it but the kernels themselves.

What it imports of torch, Triton and vLLM is replaced, so this shows that the words that rigup sends are understood,
that the work goes through Ray's stand-in, and that files and lines are those that rigup reads. Needs the index.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict
from unittest.mock import MagicMock

import pytest

import rigup.programs.tuner_ray as ray
from rigup.cache import cache_folder
from rigup.catalogue.tools.tuners import tuner
from rigup.planner.moe_config import config_filename
from rigup.programs.tune_moe import measured
from rigup.sources.archives import pin_source
from rigup.tuning.run import tuner_files

pytestmark = [pytest.mark.slow, pytest.mark.rests_on("vLLM's package", "tuning")]

VERSIONS = ["0.12.0", "0.33.0"]
DEVICE = "NVIDIA_H200"
WORDS = ["--model", "/weights", "--tp-size", "8", "--enable-expert-parallel", "--dtype", "fp8_w8a8"]
QUANTISATION = {"quant_method": "fp8", "weight_block_size": [128, 128]}
MINIMAX = SimpleNamespace(
    architectures=["MiniMaxM2ForCausalLM"],
    num_local_experts=256,
    num_experts_per_tok=8,
    intermediate_size=1536,
    hidden_size=3072,
    quantization_config=QUANTISATION,
    dtype="bfloat16",
    torch_dtype="bfloat16",
)
MINIMAX.get_text_config = lambda: MINIMAX


def tool(version: str) -> str:
    """The source of the tuner of a release."""
    found = tuner("vllm", version)
    assert found is not None
    source = pin_source("vllm", version, found.archive, found.root, cache_folder() / "sources")
    (text,) = tuner_files(found, source, "test").values()
    return text


def timed(config: dict[str, int], num_tokens: int, *_: Any, **__: Any) -> float:
    """Stands for running a kernel: small tiles are best for few tokens, large ones for many."""
    return 10.0 + abs(config["BLOCK_SIZE_M"] - num_tokens) / 10 + config["num_stages"] / 100


class Tool:
    """The tuner's module with stand-ins for what it imports, and its command line."""

    def __init__(self, source: str, folder: Path) -> None:
        tree = ast.parse(source)
        main = [node for node in tree.body if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)]
        kept = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom) and node not in main]
        platform = MagicMock()
        platform.is_rocm.return_value = platform.is_xpu.return_value = False
        triton = MagicMock(__version__="3.6.0")
        triton.runtime.autotuner.OutOfResources = MemoryError
        self.space: dict[str, Any] = {
            "__name__": "tool", "argparse": argparse, "json": json, "time": time, "product": product, "Any": Any,
            "TypedDict": TypedDict, "datetime": datetime, "ray": ray, "tqdm": ray.tqdm, "torch": MagicMock(),
            "triton": triton, "current_platform": platform, "init_logger": MagicMock(), "gc": MagicMock(),
            "os": __import__("os"), "nullcontext": __import__("contextlib").nullcontext, "set_random_seed": MagicMock(),
            "get_config": lambda *_, **__: MINIMAX, "get_moe_configs": lambda *_: None, "mk": MagicMock(),
            "get_default_config": lambda *_: {"BLOCK_SIZE_M": 64, "num_stages": 3},
            "_get_config_dtype_str": lambda *_, **__: "fp8_w8a8",
            "get_config_file_name": lambda e, n, kind, block: config_filename("vllm", e, n, DEVICE, kind, tuple(block)),
        }  # fmt: skip
        for node in kept:  # functions import some of it once more
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef):
                    inner.body = [line for line in inner.body if not isinstance(line, ast.ImportFrom)] or [ast.Pass()]
        exec(compile(ast.fix_missing_locations(ast.Module(kept, [])), "tool", "exec"), self.space)
        self.space["benchmark_config"] = timed
        self.folder = folder
        self.parser = argparse.ArgumentParser()
        self.main = ast.Module(main[0].body, [])

    def run(self, *words: str) -> None:
        """The tool's own `if __name__ == "__main__"`, with these words."""
        before = sys.argv
        sys.argv = ["benchmark_moe.py", *words]
        try:
            space = self.space | {"FlexibleArgumentParser": argparse.ArgumentParser}
            exec(compile(self.main, "main", "exec"), space)
        finally:
            sys.argv = before


@pytest.fixture(params=VERSIONS)
def real(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tool]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGUP_PROGRESS", str(tmp_path / "progress"))
    yield Tool(tool(request.param), tmp_path)


def test_a_search_leaves_a_table_under_the_planned_name_and_says_how_far_it_is(real: Tool) -> None:
    real.run(*WORDS, "--tune", "--batch-size", "64")
    name = config_filename("vllm", 32, 1536, DEVICE, "fp8_w8a8", (128, 128))
    table = json.loads((real.folder / name).read_text())
    row = table["64"]
    assert row["BLOCK_SIZE_M"] == 64
    assert set(row) >= {"BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"}
    done, total = (real.folder / "progress").read_text().split("/")
    assert done == total and int(total) > 300


def test_its_measurements_are_lines_that_rigup_reads(real: Tool, capsys: pytest.CaptureFixture[str]) -> None:
    real.run(*WORDS, "--batch-size", "1", "64")
    assert measured(capsys.readouterr().out, [1, 64]) == {"1": 16.33, "64": 10.03}


def test_it_takes_nothing_from_ray_that_the_stand_in_lacks(real: Tool) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import ray; from ray.experimental.tqdm_ray import tqdm"
    (real.folder / "modules/ray").mkdir(parents=True)
    (real.folder / "modules/ray/__init__.py").write_text(Path(ray.__file__).read_text())
    subprocess.run([sys.executable, "-c", code, str(real.folder / "modules")], check=True, timeout=60)
