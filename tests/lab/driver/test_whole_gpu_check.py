"""bin/gpu-check against the lab's cards: the real pack, probe and links, with a stand-in for the engine that serves.

Its name puts it behind `test_loaded.py`, which begins with a bare machine.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu_pack import KIND, shapes, tiny_plans
from rigup.catalogue.catalogue import load_catalogue
from rigup.facts.probe import parse
from rigup.facts.probe_script import script
from rigup.lock import load_lock
from rigup.operations.driver.links import program
from rigup.project.inventory import toolkit_root
from tests.lab.gpu_fleet import GpuFleet
from tests.tiny.checkpoint import write_gguf
from tests.unit.test_gpu_check import SERVER

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.rests_on("the run", "links", "benchmarks of services", "locking", "new hosts"),
]

ROOT = Path(__file__).parents[3]


def test_it_goes_through_all_parts_and_changes_no_setting(fleet: GpuFleet, tmp_path: Path) -> None:
    fleet.apply("--reboot")
    catalogue = load_catalogue()
    (source,) = (found for found in load_lock(toolkit_root() / "rigup.lock").sources if found.engine == "llama.cpp")
    write_gguf(tmp_path / "model.gguf", KIND)
    files = {
        "benchmarks/gpu_check.py": (ROOT / "benchmarks/gpu_check.py").read_text(),
        "benchmarks/gpu_moe.py": (ROOT / "benchmarks/gpu_moe.py").read_text(),
        "pack/probe.sh": script(),
        "pack/verify.py": program(),
        "pack/plans.json": json.dumps(tiny_plans(tmp_path / "model.gguf", source, catalogue)),
        "pack/kernels.json": json.dumps(shapes(catalogue)),
        "pack/model.gguf": "",
        "llama-server": SERVER,
    }
    for name, text in files.items():
        fleet.host.machine.ssh(f"mkdir -p $(dirname /run/check/{name}); cat >/run/check/{name}", input=text, check=True)
    settings = "nvidia-smi --query-gpu=power.limit,persistence_mode,ecc.mode.current --format=csv,noheader"
    before = fleet.host.tell(settings)
    fleet.host.tell("chmod +x /run/check/llama-server")
    fleet.host.tell(
        "cd /run/check && python3 benchmarks/gpu_check.py pack --output result.json --server ./llama-server"
    )
    found = json.loads(fleet.host.tell("cat /run/check/result.json"))
    fleet.host.tell("rm -r /run/check")

    assert found["card"] == "NVIDIA GeForce RTX 3090"
    assert [gpu.compute_capability for gpu in parse(found["probe"]).gpus] == ["8.6"] * 4
    assert [link["correct"] for link in found["links"] if "pair" in link] == [True] * 12
    assert found["links"][-1] == {"done": True}
    assert "-DCMAKE_CUDA_ARCHITECTURES=86" in found["plan"]["flags"]
    assert "-DLLAMA_USE_PREBUILT_UI=OFF" in found["plan"]["flags"]
    assert found["compared"]["kv_cache_mib"] == [8, 8.0]
    assert found["compared"]["total_mib"][1] is not None
    assert "torch" in found["moe_kernel"]["missing"]
    assert fleet.host.tell(settings) == before
