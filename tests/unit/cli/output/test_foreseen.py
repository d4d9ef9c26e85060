"""What is told before the confirmation: sizes, and durations as far as they are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rigup.artifacts import CudaCompiler
from rigup.cli.output.foreseen import sentences
from rigup.facts.probe import Probe
from rigup.layout import weights_folder
from rigup.run.result import Change


def plan(**build: Any) -> Any:
    checkpoint = SimpleNamespace(repo="org/m", quant="Q4", bytes=12_500_000_000, revision="abc", host_folder=None)
    values = {"engine": "llama.cpp", "version": "b1", "method": "source", "made_for": None, "image": None, **build}
    return SimpleNamespace(checkpoints=(checkpoint,), build=SimpleNamespace(**values))


WEIGHTS = Change("weights", "weights org/m Q4")
BUILD = Change("engine", "build llama.cpp-b1-abc")


def test_downloads_are_sizes_with_times() -> None:
    assert sentences([plan()], [WEIGHTS], Probe()) == [
        "download 12.5 GB: 1 min 40 s at 1 Gbit/s, 16 min 40 s at 100 Mbit/s"
    ]
    assert sentences([plan()], [WEIGHTS], Probe(), 50_000_000) == ["download 12.5 GB: 4 min 10 s at 50.0 MB/s"]


def test_what_is_there_already_is_not_downloaded_again() -> None:
    half = Probe(incoming={weights_folder("org/m", "abc"): 6_250_000_000})
    assert sentences([plan()], [WEIGHTS], half)[0].startswith("download 6.2 GB: 50.0 s at 1 Gbit/s")
    assert sentences([plan()], [], Probe()) == []


def test_compiling_counts_cores_where_it_was_measured() -> None:
    assert sentences([plan()], [BUILD], Probe(cpus=2)) == ["compile llama.cpp b1: about 5 min 35 s on 2 cores"]
    (cuda,) = sentences([plan(made_for=object())], [BUILD], Probe(cpus=2))
    assert "min" not in cuda
    taken = Change("engine", "build llama.cpp-b1-abc, builder gpu1")
    assert sentences([plan()], [taken], Probe(cpus=2)) == []


def test_kernels_take_as_long_for_each_kind_of_card() -> None:
    compiler = CudaCompiler(
        package="nvcc", series="13.0", folder="cu13", kernels=("m:f",), seconds={"m:f": 100}, source="x"
    ).for_rig(("8.6", "9.0"))
    engine = plan(
        engine="vllm", method="wheel", environment=SimpleNamespace(files={"a.whl": ""}), own_compiler=compiler
    )
    assert sentences([engine], [Change("engine", "build vllm-1")], Probe()) == [
        "install vllm b1: 1 Python packages; compile GPU kernels for compute capability 8.6 and 9.0: "
        "about 3 min 20 s on 2 cores"
    ]


def test_packages_images_and_reboots() -> None:
    environment = SimpleNamespace(files={"a.whl": "", "b.whl": ""})
    wheels = plan(engine="vllm", method="wheel", environment=environment, own_compiler=None)
    assert sentences([wheels], [Change("engine", "build vllm-1")], Probe()) == ["install vllm b1: 2 Python packages"]
    image = plan(engine="vllm", method="image", image=SimpleNamespace(reference="r@sha256:1", bytes=125_000_000))
    assert sentences([image], [Change("engine", "image vllm-1")], Probe()) == [
        "download 125.0 MB: 1.00 s at 1 Gbit/s, 10.0 s at 100 Mbit/s"
    ]
    load = Change("driver", "load driver 580: nouveau; reboots where it must")
    assert sentences([image], [load], Probe()) == ["reboot where the driver needs it"]
