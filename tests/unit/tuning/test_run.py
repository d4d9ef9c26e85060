"""Whether a tuned table wins, what a host is told to run, and the kernel that comes of it."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.moe_configs import load_moe_configs
from rigup.catalogue.tools.tuners import tuner
from rigup.commands.tuning import TOKENS, tuning_job
from rigup.errors import InputError
from rigup.lock import Lock, LockedCheckpoint, LockedFile, LockedSource
from rigup.plan import Plan
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.project.planning import plan_service
from rigup.service import Service
from rigup.tuning.gain import Gain, gain_of
from rigup.tuning.run import TuningResult, keep, tuner_files
from tests.tuned_kernels import file_of, kernel

REPO = "MiniMaxAI/MiniMax-M2.5"
TRITON = {"--moe-backend": "triton"}
RIG = {"gpus": "8x RTX PRO 6000 Blackwell Max-Q Workstation Edition", "host_memory_gib": 512}
WEIGHTS = LockedFile(path="model.safetensors", size=230_134_260_592, sha256="0" * 64)
LOCK = Lock(checkpoints=(LockedCheckpoint(repo=REPO, quant="FP8", revision="1" * 40, files=(WEIGHTS,)),))


def gain(baseline: list[list[float]], tuned: list[list[float]]) -> Gain:
    """For 1 and 64 tokens."""
    sides = {"baseline": baseline, "tuned": tuned}
    return gain_of({side: [{"1": run[0], "64": run[1]} for run in runs] for side, runs in sides.items()})


def test_a_table_wins_where_its_slowest_run_is_faster_than_the_fastest_without() -> None:
    found = gain([[10, 40], [10.2, 40], [9.8, 41]], [[9, 36], [9.1, 36], [8.9, 36.5]])
    assert found.wins
    assert found.percent == pytest.approx(10, abs=0.6)
    assert found.slower == ()
    assert [(row.tokens, row.baseline_us, row.tuned_us) for row in found.rows] == [(1, 10, 9), (64, 40, 36)]
    assert found.text == (
        "10.1 % less kernel time: 20.0 us (20.0 to 20.2) before, 18.0 us (18.0 to 18.1) tuned "
        "(geometric means over 2 numbers of tokens, medians of 3 runs)"
    )


def test_a_gain_within_what_the_runs_differ_by_does_not_win() -> None:
    found = gain([[10, 40], [10.5, 40], [9.5, 40]], [[9.6, 40], [9.4, 40], [10.1, 40]])
    assert found.percent > 0
    assert not found.wins


def test_a_table_that_is_as_fast_does_not_win() -> None:
    assert not gain([[10, 40]] * 3, [[10, 40]] * 3).wins


def test_where_a_table_is_slower_in_every_run_is_told_although_it_wins() -> None:
    found = gain([[10, 40], [10.1, 40.2], [10, 40.1]], [[5, 42], [5, 42.1], [5.1, 42]])
    assert found.wins
    assert found.slower == (64,)
    slower = gain([[10, 40]] * 3, [[12, 44]] * 3)
    assert not slower.wins
    assert slower.text.startswith("14.9 % more kernel time: ")


def planned(engine: str, version: str, own: bool = False, **service: object) -> Plan:
    catalogue = replace(load_catalogue(), moe_configs=(file_of(kernel()),) if own else ())
    asked = {"name": "minimax", "checkpoint": REPO, "engine": engine, "version": version, **service}
    rig = read_rig(RIG, "test", catalogue)
    plan = plan_service("h", "g", rig, Service.model_validate(asked), catalogue, LOCK)
    assert plan.verdict == "ok", plan.refusals
    return plan


def test_vllms_tuner_is_run_for_each_number_of_tokens_and_measures_them_together() -> None:
    job = tuning_job(planned("vllm", "0.33.0", flags=TRITON), "/opt/b", "/var/w", "benchmark_moe.py", (1, 64), 5)
    words = ["/opt/b/bin/python", "/var/w/benchmark_moe.py", "--model", f"/var/lib/rigup/weights/{REPO}/{'1' * 40}"]
    words += ["--tp-size", "8", "--enable-expert-parallel", "--dtype", "fp8_w8a8"]
    assert job["tune"] == [[*words, "--tune", "--batch-size", "1"], [*words, "--tune", "--batch-size", "64"]]
    assert job["measure"] == [*words, "--batch-size", "1", "64"]
    assert job["gpus"] == list(range(8))
    assert (job["variable"], job["baseline"], job["below"]) == ("VLLM_TUNED_CONFIG_FOLDER", None, "")


def test_sglangs_tuner_has_other_options_and_takes_its_own_numbers_of_tokens() -> None:
    job = tuning_job(planned("sglang", "0.5.23"), "/opt/b", "/var/w", "tune.py", TOKENS, 5)
    assert job["measure"][-6:] == ["--tp-size", "8", "--ep-size", "8", "--dtype", "fp8_w8a8"]
    assert len(job["tune"]) == 18
    assert (job["variable"], job["below"]) == ("SGLANG_MOE_CONFIG_DIR", "configs")


def test_16_bits_are_what_both_tuners_call_auto() -> None:
    plan = planned("vllm", "0.33.0", flags=TRITON)
    assert plan.moe_config is not None
    sixteen = plan.moe_config.model_copy(update={"dtype": "", "block_shape": None})
    plan = plan.model_copy(update={"moe_config": sixteen})
    (words,) = tuning_job(plan, "/opt/b", "/var/w", "t.py", (1,), 3)["tune"]
    assert words[words.index("--dtype") + 1] == "auto"


def test_a_config_that_is_in_use_is_what_is_measured_against() -> None:
    plan = planned("vllm", "0.33.0", own=True)
    assert plan.moe_folder is not None
    assert tuning_job(plan, "/opt/b", "/var/w", "t.py", (1,), 3)["baseline"] == plan.moe_folder.path


def archive(path: Path, files: dict[str, str]) -> str:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def source(tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> LockedSource:
    """An archive that is in the cache already."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "rigup/sources"
    folder.mkdir(parents=True)
    sha256 = archive(folder / "made", files)
    (folder / "made").rename(folder / sha256)
    return LockedSource(engine="vllm", version="0.33.0", address="pypi:vllm==0.33.0", sha256=sha256, root="vllm-0.33.0")


def test_the_tuner_comes_out_of_the_pinned_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tuner("vllm", "0.33.0")
    assert found is not None
    assert (found.archive, found.root) == ("pypi:vllm==0.33.0", "vllm-0.33.0")
    text = "print('tuning')\n"
    pinned = source(tmp_path, {f"vllm-0.33.0/{found.files[0]}": text, "vllm-0.33.0/setup.py": ""}, monkeypatch)
    assert tuner_files(found, pinned, "h") == {"benchmark_moe.py": text}


def test_an_archive_without_the_tuner_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tuner("vllm", "0.33.0")
    assert found is not None
    pinned = source(tmp_path, {"vllm-0.33.0/setup.py": ""}, monkeypatch)
    with pytest.raises(InputError) as caught:
        tuner_files(found, pinned, "h")
    assert caught.value.message == (
        "vllm 0.33.0: pypi:vllm==0.33.0 does not contain vllm-0.33.0/benchmarks/kernels/benchmark_moe.py"
    )


def test_llama_cpp_has_no_tuner() -> None:
    assert tuner("llama.cpp", "b11434") is None


def test_a_kernel_that_is_kept_is_one_that_plans_take(tmp_path: Path) -> None:
    won = gain([[10, 40]] * 3, [[9, 36]] * 3)
    path = keep(TuningResult("h", kernel(), won, 1.0), tmp_path)
    (file,) = load_moe_configs(tmp_path / "files/moe_configs")
    assert tmp_path / "files/moe_configs" / file.path == path
    assert file.tuned == kernel()
    assert list(path.parent.iterdir()) == [path]


def test_a_fleet_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*: Not a directory"):
        keep(TuningResult("h", kernel(), gain([[1, 1]] * 3, [[1, 1]] * 3), 1.0), tmp_path)
