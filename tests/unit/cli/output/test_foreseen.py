"""What is told before the confirmation: sizes, and durations as far as they are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rigup.artifacts import CudaCompiler, LockedEnvironment, LockedImage
from rigup.cli.output.foreseen import sentences
from rigup.facts.probe import Probe
from rigup.layout import weights_folder
from rigup.operations.builds.source import name_of
from rigup.plan import Build, Checkpoint, DriverPlan, MadeFor, Plan
from rigup.rig import Rig
from rigup.run.result import Change
from rigup.service import Service
from rigup.settings import Builder, HostSettings, PackageSource, WeightsSettings

CHECKPOINT = Checkpoint(repo="org/m", quant="Q4", bytes=12_500_000_000, revision="abc")
WEIGHTS = "weights org/m Q4"
LLAMA = Build(engine="llama.cpp", version="b1", method="source")
LOCKED = LockedEnvironment(
    engine="vllm",
    version="0.33.0",
    python="3.12.1",
    files={"a-1-py3-none-any.whl": "a" * 64, "b-1-py3-none-any.whl": "b" * 64},
    bytes=4_290_616_652,
)
VLLM = Build(engine="vllm", version="0.33.0", method="wheel", environment=LOCKED)
HOUSE = HostSettings(packages=PackageSource(wheelhouse=Path("house")))


def plan(build: Build = LLAMA, **more: Any) -> Plan:
    service = Service(name="chat", model="m", port=8000)
    values = {"host": "box", "group": "boxes", "verdict": "ok", "rig": Rig(gpus=()), "service": service}
    return Plan(**{**values, "build": build, "checkpoint": CHECKPOINT, **more})


def made(build: Build) -> str:
    return f"{'image' if build.image else 'build'} {name_of(build, '', '')}"


def said(
    plans: Plan | list[Plan],
    *steps: str,
    probe: Probe | None = None,
    settings: HostSettings | None = None,
    offered: dict[str, int] | None = None,
) -> list[str]:
    changes = [Change("role", step) for step in steps]
    every = plans if isinstance(plans, list) else [plans]
    return sentences(every, changes, probe or Probe(), settings or HostSettings(), offered)


def test_downloads_are_sizes_with_times() -> None:
    assert said(plan(), WEIGHTS) == ["download 12.5 GB: 1 min 40 s at 1 Gbit/s, 16 min 40 s at 100 Mbit/s"]


def test_the_limit_of_a_fleet_holds_for_weights_alone() -> None:
    limited = HostSettings(weights=WeightsSettings(hub_bytes_per_second=50_000_000))
    of_weights = "download 12.5 GB of weights: 4 min 10 s at 50.0 MB/s"
    assert said(plan(), WEIGHTS, settings=limited) == [of_weights]
    assert said(plan(VLLM), WEIGHTS, made(VLLM), settings=limited)[:2] == [
        of_weights,
        "download 4.3 GB: 34.3 s at 1 Gbit/s, 5 min 43 s at 100 Mbit/s",
    ]


def test_what_is_there_already_is_not_downloaded_again() -> None:
    half = Probe(incoming={weights_folder("org/m", "abc"): 6_250_000_000})
    assert said(plan(), WEIGHTS, probe=half)[0].startswith("download 6.2 GB: 50.0 s at 1 Gbit/s")
    assert said(plan()) == []


def test_compiling_counts_cores_where_it_was_measured() -> None:
    assert said(plan(), made(LLAMA), probe=Probe(cpus=2)) == ["compile llama.cpp b1: about 5 min 35 s on 2 cores"]
    cuda = LLAMA.model_copy(update={"made_for": MadeFor(cuda="13.0")})
    (told,) = said(plan(cuda), made(cuda), probe=Probe(cpus=2))
    assert "min" not in told
    assert said(plan(), f"{made(LLAMA)}, builder gpu1", probe=Probe(cpus=2)) == []


def test_packages_are_downloaded_with_the_weights_and_unpacked() -> None:
    assert said(plan(VLLM), WEIGHTS, made(VLLM)) == [
        "download 16.8 GB: 2 min 14 s at 1 Gbit/s, 22 min 23 s at 100 Mbit/s",
        "install vllm 0.33.0: 2 Python packages, 4.3 GB, about 9.2 GB unpacked",
    ]


def test_packages_that_the_host_may_have_kept_count_at_most() -> None:
    there = Probe(kept_wheels=True)
    assert said(plan(VLLM), made(VLLM), probe=there)[0].startswith("download at most 4.3 GB: ")
    assert said(plan(VLLM), made(VLLM), probe=there, settings=HOUSE)[0].startswith("send at most 4.3 GB from ")
    assert said(plan(), WEIGHTS, probe=there)[0].startswith("download 12.5 GB: ")


def test_a_wheelhouse_sends_packages_and_what_it_has_of_the_weights() -> None:
    assert said(plan(VLLM), WEIGHTS, made(VLLM), settings=HOUSE)[:2] == [
        "download 12.5 GB: 1 min 40 s at 1 Gbit/s, 16 min 40 s at 100 Mbit/s",
        "send 4.3 GB from this machine: 34.3 s at 1 Gbit/s, 5 min 43 s at 100 Mbit/s",
    ]
    (whole, install) = said(plan(VLLM), WEIGHTS, made(VLLM), settings=HOUSE, offered={WEIGHTS: 12_500_000_000})
    assert whole == "send 16.8 GB from this machine: 2 min 14 s at 1 Gbit/s, 22 min 23 s at 100 Mbit/s"
    assert install.startswith("install vllm")
    half = said(plan(), WEIGHTS, settings=HOUSE, offered={WEIGHTS: 6_250_000_000})
    assert [text.partition(":")[0] for text in half] == ["download 6.2 GB", "send 6.2 GB from this machine"]


def test_a_lock_without_sizes_says_so() -> None:
    unsized = VLLM.model_copy(update={"environment": LOCKED.model_copy(update={"bytes": 0})})
    assert made(unsized) == made(VLLM), "no build depends on sizes"
    for settings in (HostSettings(), HOUSE):
        assert said(plan(unsized), made(unsized), settings=settings) == [
            "install vllm 0.33.0: 2 Python packages, size not in rigup.lock"
        ]


def test_two_engines_of_a_host_count_each() -> None:
    own = LOCKED.model_copy(update={"engine": "sglang", "version": "0.5.23", "bytes": 10**9})
    sglang = VLLM.model_copy(update={"engine": "sglang", "version": "0.5.23", "environment": own})
    told = said([plan(VLLM), plan(sglang), plan(VLLM)], made(VLLM), made(sglang))
    assert [text.partition(":")[0] for text in told] == [
        "download 5.3 GB",
        "install vllm 0.33.0",
        "install sglang 0.5.23",
    ]


def test_kernels_take_as_long_for_each_kind_of_card() -> None:
    compiler = CudaCompiler(
        package="a", series="13.0", folder="cu13", kernels=("m:f",), seconds={"m:f": 100}, source="x"
    ).for_rig(("8.6", "9.0"))
    locked = LOCKED.model_copy(update={"files": {"a-13.0.1-py3-none-any.whl": "a" * 64}})
    engine = VLLM.model_copy(update={"environment": locked, "compiler": compiler})
    (_, install) = said(plan(engine), made(engine))
    assert install == (
        "install vllm 0.33.0: 1 Python packages, 4.3 GB, about 9.2 GB unpacked; compile GPU kernels for compute "
        "capability 8.6 and 9.0: about 3 min 20 s on 2 cores"
    )
    for name, who in (("gpu1", ", or take those of gpu1"), ("controller", "")):
        fleet = HostSettings(builders=(Builder(name, Path("records")),))
        assert said(plan(engine), made(engine), settings=fleet)[1].endswith(f" 9.0{who}: about 3 min 20 s on 2 cores")


def test_images() -> None:
    there = LockedImage(
        engine="vllm", version="1", repository="r.io/v/v", digest=f"sha256:{'1' * 64}", bytes=125_000_000
    )
    image = Build(engine="vllm", version="1", method="image", image=there)
    assert said(plan(image), made(image)) == ["download 125.0 MB: 1.00 s at 1 Gbit/s, 10.0 s at 100 Mbit/s"]
    assert said(plan(image), "image vllm-of-another-service") == []


def test_packages_of_nvidia_come_on_top() -> None:
    on_top = ["install NVIDIA's packages: their size is unknown until the host has their lists"]
    driven = plan(driver=DriverPlan(version="580.178.04", branch="580", flavour="open"))
    assert said(driven, "driver 580.178.04: not installed") == on_top
    assert said(driven, "driver 580.178.04 without modules") == on_top
    assert said(driven, "driver held at 580.178.04, nouveau off") == []
    assert said(plan(), "CUDA libraries libcublas-13-0") == on_top
    cuda = LLAMA.model_copy(update={"made_for": MadeFor(cuda="13.0"), "pinned_packages": {"cuda-nvcc-13-0": "13.0.88"}})
    assert said(plan(cuda), made(cuda))[1:] == on_top


def test_reboots() -> None:
    assert said(plan(), "load driver 580: nouveau; reboots where it must") == ["reboot where the driver needs it"]
