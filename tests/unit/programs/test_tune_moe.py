"""The host's part of tuning, with a stand-in tuner that uses Ray as vLLM's does: tables merged, both sides measured."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rigup.programs import program_file

STAND_IN = Path(__file__).parents[2] / "stand_in_tuner" / "benchmark_moe.py"
NAME = "E=32,N=1536,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
Tune = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work folder as it lies on a host, with a stand-in for Triton."""
    (tmp_path / "modules/ray").mkdir(parents=True)
    shutil.copy(program_file("tuner_ray.py"), tmp_path / "modules/ray/__init__.py")
    (tmp_path / "modules/triton.py").write_text('__version__ = "3.6.0+git1"\n')
    config = {"num_local_experts": 256, "intermediate_size": 1536, "stand_in_device": "NVIDIA_H200"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.fixture
def tune(work: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """Runs the program with a tuner that behaves so; `changes` are to the job."""

    def run(behaviour: dict[str, Any] | None = None, **changes: Any) -> subprocess.CompletedProcess[str]:
        tokens = changes.get("tokens", [1, 64, 4096])
        words = [sys.executable, str(STAND_IN), "--model", str(work), "--tp-size", "8", "--enable-expert-parallel"]
        words += ["--dtype", "fp8_w8a8"]
        job = {
            "work": str(work),
            "python": sys.executable,
            "tune": [[*words, "--tune", "--save-dir", ".", "--batch-size", str(count)] for count in tokens],
            "measure": [*words, "--batch-size", *map(str, tokens)],
            "gpus": [2, 3],
            "runs": 1,
            "variable": "VLLM_TUNED_CONFIG_FOLDER",
            "baseline": None,
            "tokens": tokens,
            "below": "",
            **changes,
        }
        (work / "job.json").write_text(json.dumps(job))
        (work / "behaviour").write_text(json.dumps(behaviour or {}))
        monkeypatch.setenv("RIGUP_TEST_TUNER", str(work / "behaviour"))
        command = [sys.executable, str(program_file("tune_moe.py")), str(work / "job.json")]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return run


def test_tables_of_all_searches_become_one_and_both_sides_are_measured_in_turn(work: Path, tune: Tune) -> None:
    done = tune({"gain": 2.0, "noise": 0.01}, runs=2)
    assert done.returncode == 0, done.stderr
    result = json.loads((work / "result.json").read_text())
    assert (result["name"], result["triton"]) == (NAME, "3.6.0")
    assert list(result["table"]) == ["1", "64", "4096"]
    assert result["table"]["64"]["BLOCK_SIZE_M"] == 64
    assert [len(result["times"][side]) for side in ("baseline", "tuned")] == [2, 2]
    for before, after in zip(result["times"]["baseline"], result["times"]["tuned"], strict=True):
        assert [after[count] / before[count] for count in after] == pytest.approx([0.5] * 3, abs=0.02)
    assert sorted(path.read_text() for path in work.glob("progress-*")) == ["4/4"] * 3


def test_what_a_baseline_folder_holds_is_what_the_tuned_table_is_measured_against(work: Path, tune: Tune) -> None:
    (work / "before").mkdir()
    (work / "before" / NAME).write_text("{}")
    assert tune({"gain": 2.0, "noise": 0.01}, baseline=str(work / "before")).returncode == 0
    times = json.loads((work / "result.json").read_text())["times"]
    assert times["tuned"][0]["1"] == pytest.approx(times["baseline"][0]["1"], rel=0.03)


def test_sglang_finds_the_table_under_its_triton(work: Path, tune: Tune) -> None:
    assert tune(below="configs").returncode == 0
    assert (work / "tuned/configs/triton_3_6_0" / NAME).is_file()


def test_a_tuner_that_fails_ends_it_with_its_last_words(work: Path, tune: Tune) -> None:
    done = tune({"fail": "CUDA out of memory"})
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "the tuner exited with status 1: CUDA out of memory"
    assert not (work / "result.json").exists()


def test_tables_under_different_names_are_not_taken_for_one(work: Path, tune: Tune) -> None:
    (work / "config.json").write_text(
        json.dumps({"num_local_experts": 256, "intermediate_size": 1536, "stand_in_device": "X"})
    )
    words = [sys.executable, str(STAND_IN), "--model", str(work), "--dtype", "fp8_w8a8", "--tune", "--batch-size"]
    tune_words = [[*words, "1", "--tp-size", "8"], [*words, "2", "--tp-size", "4"]]
    done = tune(tune=tune_words)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("the tuner wrote 2 tables, expected 2: E=256,N=192,")


def test_a_build_without_triton_is_said_before_anything_runs(work: Path, tune: Tune) -> None:
    (work / "modules/triton.py").write_text("raise ImportError('no libcuda')\n")
    done = tune()
    assert done.stderr.splitlines()[-1] == "cannot import the build's Triton: ImportError: no libcuda"
    assert not list(work.glob("tune-*"))
