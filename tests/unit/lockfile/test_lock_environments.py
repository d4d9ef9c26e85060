"""`rigup lock` for engines that are installed as packages: what is pinned, kept, moved, dropped and said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.artifacts import LockedEnvironment, LockedUv
from rigup.catalogue.engines import EngineVersion
from rigup.catalogue.option_names import NameList, known_options, known_variables, package
from rigup.errors import InputError
from rigup.lock import Lock, LockedSource, load_lock
from rigup.lockfile import lock as locking
from rigup.lockfile import package_lists, resolver
from rigup.lockfile.entries import changes
from rigup.lockfile.package_diff import PackageMove
from rigup.project import inventory
from rigup.project.pinned import require_pinned
from rigup.sources.package_index import IndexFile
from rigup.sources.python_environment import Resolution
from tests.serving import serving
from tests.unit.lockfile.test_lock import COMMIT, SMOL, Fleet
from tests.unit.planner.asking import NCCL
from tests.unit.sources.replayed_hub import ReplayedHub, stored_apart

FP8 = "MiniMaxAI/MiniMax-M2.5"
RIG = {"gpus": "4x RTX PRO 6000 Blackwell Workstation Edition", "host_memory_gib": 256}
SOURCE = LockedSource(engine="llama.cpp", version="b11434", address="https://a/b", sha256="3" * 64, root="llama.cpp")
CHAT = {"checkpoint": FP8, "engine": "vllm", "tensor_parallel": 4}


class Index:
    """In place of uv and its index: an engine at its version, torch at `torch`, one more package by version."""

    def __init__(self) -> None:
        self.torch = "2.14.0"
        self.asked: list[tuple[str, str, str, str, str]] = []
        self.lacking: set[str] = set()
        self.local: tuple[str, ...] = ()
        self.wheel: str | None = None
        self.bytes = 0
        self.compiler = "nvidia_cuda_nvcc-13.0.88-py3-none-any.whl"

    def pin_wheels(self, project: str, version: str | None, asked: str) -> tuple[str, dict[str, str]]:
        version = version or "0.13.9"
        names = [f"uv-{version}-py3-none-manylinux_2_28_{architecture}.whl" for architecture in ("x86_64", "aarch64")]
        return version, dict.fromkeys(names, "f" * 64)

    def resolve(
        self, program: Path, release: EngineVersion, variant: Any, architecture: Any, ray: bool = False
    ) -> Resolution:
        self.asked.append((program.name, release.engine, release.version, variant, architecture))
        if release.version in self.lacking:
            raise InputError(f"{release.engine} {release.version}: no wheel", "it has: none")
        more = "ray-2.50-py3-none-any.whl" if release.version < "0.3" else "quack-1.0-py3-none-any.whl"
        names = [f"{release.engine}-{release.version}-py3-none-any.whl", f"torch-{self.torch}-py3-none-any.whl", more]
        names += ["ray-2.60.0-py3-none-any.whl"] if ray else []
        names += [self.compiler] if self.compiler else []
        environment = LockedEnvironment(
            engine=release.engine,
            version=release.version,
            variant=variant,
            architecture=architecture,
            python="3.12.16",
            files=dict.fromkeys(sorted(names), "a" * 64),
            bytes=self.bytes,
        )
        sha256 = self.wheel or package(release.engine, release.version)["sha256"]
        own = IndexFile(names[0], "file:///nowhere", sha256)
        return Resolution(environment, self.local, own)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index()
    monkeypatch.setattr(resolver, "pin_wheels", made.pin_wheels)
    monkeypatch.setattr(resolver, "uv_program", lambda locked: Path(f"uv-{locked.version}"))
    monkeypatch.setattr(resolver, "resolve_environment", made.resolve)
    return made


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Index) -> Iterator[Fleet]:
    monkeypatch.setattr(inventory, "toolkit_root", lambda: tmp_path / "toolkit")
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    (tmp_path / "fleet").mkdir()
    with serving(ReplayedHub()) as hub:
        fleet = Fleet(tmp_path / "fleet", hub)
        hub.revision(FP8)
        config = hub.small_file("config.json", b"{}", FP8)
        weights = b'{"weight_map": {"a": "model-00001-of-00001.safetensors"}}'
        listed = hub.small_file("model.safetensors.index.json", weights, FP8)
        big = stored_apart("model-00001-of-00001.safetensors", 230_000_000_000)
        hub.tree([config, listed, big], FP8, COMMIT)
        fleet.describe(CHAT, RIG)
        yield fleet


def environments(lock: Lock) -> list[tuple[str, ...]]:
    return [entry.name for entry in lock.environments]


def test_an_environment_and_uv_are_pinned_and_the_plan_takes_them(fleet: Fleet, index: Index) -> None:
    lock = fleet.lock()
    assert environments(lock) == [("vllm", "0.33.0", "cuda", "x86_64")]
    assert index.asked == [("uv-0.13.9", "vllm", "0.33.0", "cuda", "x86_64")]
    assert lock.engines == {}
    (plan, _) = locking.plan_project(fleet.project())
    assert plan.build is not None
    assert (plan.build.environment, plan.build.uv) == (lock.environments[0], lock.uv)
    assert fleet.stale() == ()
    assert "//" not in fleet.path.read_text()


@pytest.mark.parametrize("knows_all", [True, False])
def test_names_of_another_wheel_are_planned_with_and_written_with_the_lock_alone(
    fleet: Fleet, index: Index, monkeypatch: pytest.MonkeyPatch, knows_all: bool
) -> None:
    def read(resolved: Resolution) -> NameList:
        found = resolved.environment
        options = known_options("vllm", found.version) if knows_all else frozenset({"--model"})
        names = dict(zip(("engine", "version", "variant", "architecture"), found.name, strict=True))
        wheel = {"file": resolved.engine.name, "sha256": str(resolved.engine.sha256)}
        return NameList.model_validate(
            {**names, **wheel, "options": options, "variables": known_variables("vllm", "0.33.0")}
        )

    monkeypatch.setattr(package_lists, "_read", read)
    index.wheel = "b" * 64
    lists = fleet.root / "catalogue/engines/flags"
    if knows_all:
        fleet.lock()
        assert [path.name for path in lists.iterdir()] == ["vllm-0.33.0-py3-none-any.whl.json"]
    else:
        assert "plan is refused" in fleet.refusal().message
        assert not fleet.path.exists()
        assert not (fleet.root / "catalogue").exists()


def test_smg_is_pinned_for_a_gateway_that_routes_by_prefix_and_kept(
    fleet: Fleet, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def pin_wheels(project: str, version: str | None, asked_for: str) -> tuple[str, dict[str, str]]:
        if project == "uv":
            return index.pin_wheels(project, version, asked_for)
        asked.append(version)
        names = [f"smg-{version or '1.13.0'}-cp38-abi3-manylinux_2_28_{name}.whl" for name in ("x86_64", "aarch64")]
        return version or "1.13.0", dict.fromkeys(names, "5" * 64)

    monkeypatch.setattr(resolver, "pin_wheels", pin_wheels)
    assert fleet.lock().smg is None
    group = next((fleet.root / "group_data").glob("*.py"))
    group.write_text(group.read_text() + 'gateway = {"kind": "cache_aware"}\n')
    assert fleet.stale() == ("smg is missing",)
    lock = fleet.lock()
    assert lock.smg is not None and lock.smg.version == "1.13.0"
    assert fleet.stale() == () and fleet.lock() == lock
    assert '[smg]\nversion = "1.13.0"\n\n[smg.files]\n' in fleet.path.read_text()
    moved = fleet.lock(upgrade="smg=1.14.0")
    assert moved.smg is not None and (moved.smg.version, asked) == ("1.14.0", [None, "1.14.0"])


def test_nccl_is_pinned_for_services_that_cut_layers_and_kept(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def pin_wheels(project: str, version: str | None, asked_for: str) -> tuple[str, dict[str, str]]:
        asked.append((project, version))
        return str(version), {name.replace("2.28.9", str(version)): sha256 for name, sha256 in NCCL.files.items()}

    monkeypatch.setattr(resolver, "pin_wheels", pin_wheels)
    monkeypatch.setattr(resolver, "pin_source", lambda engine, version, address, root, cache: SOURCE)
    fleet.serve(SMOL, {"SmolLM2-135M-Instruct.Q4_1.gguf": 98_362_432})
    by_layer = {"checkpoint": SMOL, "engine": "llama.cpp"}
    fleet.describe(by_layer, {"gpus": "2x RTX 3090"})
    older = fleet.lock()
    assert older.nccl is None and asked == []

    fleet.describe({**by_layer, "tensor_parallel": 2}, {"gpus": "2x RTX 3090"})
    (plan, _) = locking.plan_project(fleet.project())
    require_pinned([plan], older)
    assert fleet.stale() == ("nccl is missing",)
    lock = fleet.lock()
    assert (lock.nccl, asked) == (NCCL, [("nvidia-nccl-cu13", "2.28.9")])
    assert fleet.stale() == () and fleet.lock() == lock
    assert [str((one.name, one.after)) for one in changes(older, lock)] == ["('nccl', '2.28.9')"]
    assert '[nccl]\nversion = "2.28.9"\n\n[nccl.files]\n' in fleet.path.read_text()

    moved = fleet.lock(upgrade="nccl=2.30.7")
    assert moved.nccl is not None and moved.nccl.version == "2.30.7"
    (plan, _) = locking.plan_project(fleet.project())
    assert plan.build is not None and plan.build.own_library is not None
    assert plan.build.own_library.version == "2.30.7"
    assert fleet.lock(upgrade="nccl").nccl == NCCL
    assert fleet.lock(prune=True).nccl == NCCL
    fleet.describe(by_layer, {"gpus": "2x RTX 3090"})
    assert fleet.refusal(upgrade="nccl").message == "--upgrade nccl: no service uses NCCL"
    assert fleet.lock().nccl == NCCL
    assert fleet.lock(prune=True).nccl is None


def test_twice_is_once_and_asks_nobody(fleet: Fleet, index: Index) -> None:
    first = fleet.lock()
    index.torch = "2.15.0"
    assert fleet.lock() == first
    assert len(index.asked) == 1


def test_ray_is_locked_where_it_joins_hosts_and_stays(fleet: Fleet, index: Index) -> None:
    first = fleet.lock()
    assert not first.environments[0].has("ray")
    fleet.describe({**CHAT, "across_hosts": "ray"}, {**RIG, "hosts_per_service": 2})
    (plan, _) = locking.plan_project(fleet.project())
    assert plan.on_ray
    assert fleet.stale()[0] == "environment vllm 0.33.0 is missing"
    with pytest.raises(InputError) as refused:
        require_pinned([plan], first)
    assert refused.value.message.partition("Ray for vllm 0.33.0 (cuda, x86_64) is not ")[1]
    second = fleet.lock()
    assert second.environments[0].has("ray") and len(index.asked) == 2
    assert [str(move) for change in changes(first, second) for move in change.packages] == ["+ ray 2.60.0"]
    fleet.describe(CHAT, RIG)
    assert fleet.lock().environments == second.environments
    fleet.describe({**CHAT, "across_hosts": "ray"}, {**RIG, "hosts_per_service": 2})
    assert fleet.lock(upgrade="vllm=0.33.0").environments[0].has("ray")


def test_what_is_missing_is_named(fleet: Fleet) -> None:
    lock = fleet.lock()
    locking.write_lock(fleet.path, lock.model_copy(update={"environments": (), "uv": None}))
    assert fleet.stale() == ("uv is missing", "environment vllm 0.33.0 is missing")
    one = dict(list(lock.uv.files.items())[:1]) if lock.uv else {}
    locking.write_lock(fleet.path, lock.model_copy(update={"uv": LockedUv(version="0.13.9", files=one)}))
    assert fleet.stale() == ("uv is missing",)


def test_what_a_build_is_for_follows_from_the_rig(fleet: Fleet) -> None:
    found = []
    for rig in ({"gpus": "GB10", "host_memory_gib": 128}, {"gpus": "1x RTX 3090"}, {"gpus": []}):
        fleet.describe({"model": "SmolLM2-135M-Instruct"}, rig)
        (plan, _) = locking.plan_project(fleet.project())
        assert plan.build is not None
        found.append((plan.build.variant, plan.build.architecture))
    assert found == [("cuda", "aarch64"), ("cuda", "x86_64"), ("cpu", "x86_64")]


def test_a_lock_without_the_compiler_that_fits_stays_as_it_is_until_rigup_lock(fleet: Fleet, index: Index) -> None:
    def told() -> list[str]:
        (plan, _) = locking.plan_project(fleet.project())
        return [found.message for found in plan.warnings if found.rule == "no-kernel-compiler"]

    fleet.lock()
    text = fleet.path.read_text().replace("nvidia_cuda_nvcc-13.0.88", "nvidia_cuda_nvcc-13.5.37")
    fleet.path.write_text(text)  # as rigup locked it before
    before = load_lock(fleet.path)
    (message,) = told()
    assert message.startswith("the packages in rigup.lock have no compiler for CUDA 13.0")
    (plan, _) = locking.plan_project(fleet.project())
    require_pinned([plan], before)
    assert plan.build is not None and plan.build.own_compiler is None
    assert fleet.stale() == ("environment vllm 0.33.0 is missing",)
    assert fleet.lock().environments[0].has("nvidia-cuda-nvcc", "13.0")
    assert (told(), fleet.stale()) == ([], ())


def test_packages_without_the_compiler_that_the_recipe_promises_are_refused(fleet: Fleet, index: Index) -> None:
    index.compiler = "nvidia_cuda_nvcc-13.5.37-py3-none-any.whl"
    refused = fleet.refusal()
    assert refused.message == "vllm 0.33.0: its packages do not include nvidia-cuda-nvcc 13.0"
    assert not fleet.path.exists()


def test_an_upgrade_chooses_a_version_where_no_service_names_one(fleet: Fleet, index: Index) -> None:
    before = fleet.lock()
    index.torch = "2.11.0"
    older = fleet.lock(upgrade="vllm=0.20.2")
    assert older.engines == {"vllm": "0.20.2"}
    assert environments(older) == [("vllm", "0.20.2", "cuda", "x86_64"), ("vllm", "0.33.0", "cuda", "x86_64")]
    assert {plan.build.version for plan in locking.plan_project(fleet.project()) if plan.build} == {"0.20.2"}
    assert fleet.stale() == ()
    told = {change.name: change for change in changes(before, older)}
    assert list(told) == ["engine vllm", "environment vllm 0.20.2"]
    moved = told["environment vllm 0.20.2"]
    assert (moved.kind, moved.against, moved.after) == ("added", "vllm 0.33.0", "4 packages, Python 3.12.16")
    assert moved.packages == (
        PackageMove("quack", "1.0", None),
        PackageMove("ray", None, "2.50"),
        PackageMove("torch", "2.14.0", "2.11.0"),
        PackageMove("vllm", "0.33.0", "0.20.2"),
    )
    assert [str(move) for move in moved.packages[:3]] == ["- quack 1.0", "+ ray 2.50", "torch 2.14.0 -> 2.11.0"]
    pruned = fleet.lock(prune=True)
    assert (environments(pruned), pruned.engines) == ([("vllm", "0.20.2", "cuda", "x86_64")], {"vllm": "0.20.2"})
    back = fleet.lock(upgrade="vllm")
    assert (back.engines, environments(back)[-1]) == ({}, ("vllm", "0.33.0", "cuda", "x86_64"))


def test_an_upgrade_takes_the_newest_packages_of_the_version_in_use(fleet: Fleet, index: Index) -> None:
    before = fleet.lock()
    index.torch = "2.14.1"
    after = fleet.lock(upgrade="vllm=0.33.0")
    (chosen, change) = changes(before, after)
    assert (chosen.name, chosen.after) == ("engine vllm", "0.33.0")
    assert (change.kind, change.packages) == ("moved", (PackageMove("torch", "2.14.0", "2.14.1"),))
    assert (after.uv, after.checkpoints) == (before.uv, before.checkpoints)


def test_a_lock_without_sizes_stays_as_it_is_until_its_packages_are_resolved_again(fleet: Fleet, index: Index) -> None:
    before = fleet.lock()
    written = fleet.path.read_bytes()
    assert b"\nbytes" not in written
    index.bytes = 4_290_616_652
    fleet.lock()
    assert (fleet.path.read_bytes(), fleet.stale()) == (written, ())
    after = fleet.lock(upgrade="vllm=0.33.0")
    (_, change) = changes(before, after)
    assert (change.before, change.after) == ("4 packages, Python 3.12.16", "4 packages (4.3 GB), Python 3.12.16")
    assert (change.packages, fleet.stale()) == ((), ())
    assert fleet.path.read_bytes().count(b"\nbytes = 4290616652\n") == 1


def test_a_version_that_a_service_names_is_not_moved(fleet: Fleet, index: Index) -> None:
    fleet.describe({**CHAT, "version": "0.33.0"}, RIG)
    fleet.lock()
    error = fleet.refusal(upgrade="vllm=0.20.2")
    assert error.message == "--upgrade vllm=0.20.2: no service uses this version; services use 0.33.0"
    assert error.hint == 'set "version": "0.20.2" in the service, then run rigup lock'
    assert fleet.lock(upgrade="vllm=0.33.0").engines == {}


def test_uv_moves_alone(fleet: Fleet, index: Index) -> None:
    before = fleet.lock()
    after = fleet.lock(upgrade="uv=0.14.0")
    assert [(change.name, change.before, change.after) for change in changes(before, after)] == [
        ("uv", "0.13.9", "0.14.0")
    ]


def test_versions_that_there_are_not(fleet: Fleet, index: Index) -> None:
    fleet.lock()
    error = fleet.refusal(upgrade="vllm=9.9")
    assert error.message == "--upgrade vllm=9.9: vLLM 9.9 is not supported"
    assert "0.32.0, 0.33.0; to add one" in (error.hint or "")
    index.lacking.add("0.20.2")
    error = fleet.refusal(upgrade="vllm=0.20.2")
    assert (error.message, error.hint) == ("--upgrade vllm=0.20.2: vllm 0.20.2: no wheel", "it has: none")


def test_a_chosen_version_that_this_rigup_does_not_know(fleet: Fleet) -> None:
    lock = fleet.lock()
    locking.write_lock(fleet.path, lock.model_copy(update={"engines": {"vllm": "0.99.0"}}))
    error = fleet.refusal()
    assert error.message == "rigup.lock: engines.vllm: vLLM 0.99.0 is not supported"


def test_a_wheel_that_lies_on_this_machine_only_is_told(fleet: Fleet, index: Index) -> None:
    index.local = ("torch-2.14.0-py3-none-any.whl",)
    fleet.lock()
    assert (
        "vllm 0.33.0: torch-2.14.0-py3-none-any.whl is in a local folder of this machine, so hosts need a wheelhouse "
        "(rigup lock --vendor)"
    ) in fleet.warnings
