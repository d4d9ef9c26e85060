"""Tuned kernels in the lock: pinned by content, kept as pinned, refused when they are another content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import cast

import pytest

from rigup.artifacts import LockedEnvironment, LockedUv
from rigup.catalogue.catalogue import load_catalogue
from rigup.commands.moe_configs import canonical_text
from rigup.errors import Refused
from rigup.lock import Lock, LockedCheckpoint, LockedDriver, LockedFile, load_lock
from rigup.lockfile import lock as locking
from rigup.lockfile.resolver import Resolver
from rigup.lockfile.text import lock_text
from rigup.lockfile.upgrade import Upgrade
from rigup.project import inventory
from rigup.project.inventory import Project, load_project
from rigup.project.planning import plan_project
from tests.tuned_kernels import file_of, kernel

REPO = "MiniMaxAI/MiniMax-M2.5"
WEIGHTS = LockedFile(path="model.safetensors", size=230_134_260_592, sha256="0" * 64)
KINDS = ("x86_64", "aarch64")
BEFORE = Lock(
    driver=LockedDriver(version="580.178.04", branch="580"),
    uv=LockedUv(version="1.0", files={f"uv-1.0-py3-none-manylinux_2_17_{kind}.whl": "0" * 64 for kind in KINDS}),
    environments=(
        LockedEnvironment(
            engine="vllm",
            version="0.33.0",
            python="3.12.12",
            files=dict.fromkeys(("triton-3.6.0-cp312-x.whl", "nvidia_cuda_nvcc-13.0.88-x.whl"), "0" * 64),
        ),
    ),
    checkpoints=(LockedCheckpoint(repo=REPO, quant="FP8", revision="1" * 40, files=(WEIGHTS,)),),
)
SHA256 = file_of(kernel()).sha256


class Nobody:
    """A resolver that may not ask anyone."""

    added = ()

    def __init__(self, project: Project) -> None:
        self.catalogue = load_catalogue(project.root)


class Fleet:
    """Eight cards, a tuned kernel for them, and a lock that pins everything else."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("inventories", "group_data", "files/moe_configs"):
            (root / folder).mkdir(parents=True)
        (root / "inventories/fleet.py").write_text('boxes = ["a.lan"]\n')
        rig = {"gpus": "8x RTX PRO 6000 Blackwell Max-Q Workstation Edition", "host_memory_gib": 512}
        service = {"checkpoint": REPO, "engine": "vllm", "version": "0.33.0"}
        (root / "group_data/boxes.py").write_text(f"rig = {rig!r}\nservices = {{'chat': {service!r}}}\n")
        (root / "rigup.lock").write_text(lock_text(BEFORE))
        self.write_kernel(kernel().provenance.gain)

    def write_kernel(self, gain: str) -> None:
        said = kernel().provenance.model_dump() | {"gain": gain}
        (self.root / "files/moe_configs/max-q.toml").write_text(canonical_text(kernel(provenance=said)))

    @property
    def project(self) -> Project:
        return load_project(str(self.root / "inventories/fleet.py"))

    def lock(self, upgrade: str | None = None, prune: bool = False) -> tuple[dict[str, str], list[str]]:
        """The pinned kernels after `rigup lock`, and the names of what changed."""
        resolver = cast(Resolver, Nobody(self.project))
        request = Upgrade.read(upgrade) if upgrade else None
        resolved = locking.resolve_lock(self.project, resolver, request, prune)
        locking.write(resolved)
        changed = [f"{change.kind} {change.name} {change.after}" for change in resolved.changes]
        return load_lock(self.root / "rigup.lock").moe_configs, changed


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(inventory, "toolkit_root", lambda: tmp_path / "toolkit")
    return Fleet(tmp_path / "fleet")


def test_a_kernel_in_use_is_pinned_by_its_content_and_an_equal_lock_changes_nothing(fleet: Fleet) -> None:
    (plan,) = plan_project(fleet.project)
    assert plan.moe_config is not None
    assert plan.moe_config.unlocked == ("max-q.toml",)
    assert fleet.lock() == (
        {"max-q.toml": SHA256},
        [f"added moe-config max-q.toml sha256 {SHA256[:12]}"],
    )
    text = (fleet.root / "rigup.lock").read_text()
    assert f'[moe_configs]\n"max-q.toml" = "{SHA256}"\n' in text
    assert fleet.lock() == ({"max-q.toml": SHA256}, [])
    (plan,) = plan_project(fleet.project)
    assert plan.moe_config is not None
    assert plan.moe_config.unlocked == ()


def test_another_content_is_refused_with_both_hashes_until_it_is_taken_on_purpose(fleet: Fleet) -> None:
    fleet.lock()
    fleet.write_kernel("another")
    (plan,) = plan_project(fleet.project)
    assert plan.verdict == "refused"
    (finding,) = plan.refusals
    other = load_other(fleet)
    assert finding.message == f"files/moe_configs/max-q.toml: sha256 is {other}, but rigup.lock has {SHA256}"
    assert locking.stale(fleet.project, load_catalogue(fleet.root)) == (
        f"a.lan: chat is refused: {finding.message} [{finding.rule}]",
    )
    with pytest.raises(Refused, match="plan is refused"):
        fleet.lock()
    assert fleet.lock(upgrade="moe-configs") == (
        {"max-q.toml": other},
        [f"moved moe-config max-q.toml sha256 {other[:12]}"],
    )
    assert plan_project(fleet.project)[0].verdict == "ok"


def test_what_only_another_inventory_uses_stays_as_it_is_pinned(fleet: Fleet) -> None:
    fleet.lock()
    elsewhere = load_lock(fleet.root / "rigup.lock").model_copy(
        update={"moe_configs": {"max-q.toml": SHA256, "of-another.toml": "0" * 64}}
    )
    (fleet.root / "rigup.lock").write_text(lock_text(elsewhere))
    fleet.write_kernel("another")
    other = load_other(fleet)
    assert fleet.lock(upgrade="moe-configs") == (
        {"max-q.toml": other, "of-another.toml": "0" * 64},
        [f"moved moe-config max-q.toml sha256 {other[:12]}"],
    )


def test_a_kernel_that_is_not_used_any_more_stays_until_it_is_pruned(fleet: Fleet) -> None:
    fleet.lock()
    (fleet.root / "files/moe_configs/max-q.toml").unlink()
    assert fleet.lock() == ({"max-q.toml": SHA256}, [])
    assert fleet.lock(prune=True) == ({}, ["dropped moe-config max-q.toml None"])


def test_a_kernel_that_is_not_pinned_makes_the_lock_stale(fleet: Fleet) -> None:
    assert "moe-config max-q.toml is missing" in locking.stale(fleet.project, load_catalogue(fleet.root))
    fleet.lock()
    assert locking.stale(fleet.project, load_catalogue(fleet.root)) == ()


def load_other(fleet: Fleet) -> str:
    return hashlib.sha256((fleet.root / "files/moe_configs/max-q.toml").read_bytes()).hexdigest()
