"""Plans of last time are taken only where everything that they were made of is as it was."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rigup.fleet import kept_plans
from rigup.fleet.inventory import load_project
from rigup.fleet.kept_plans import KeptPlans
from rigup.fleet.planning import plan_project
from rigup.plan import Plan

ROOT = Path(__file__).resolve().parents[3]
GROUP = "rig = {'gpus': '4x RTX 3090', 'host_memory_gib': 64}\nservices = {'chat': {'model': 'MiniMax-M2.1'}}\n"


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet of two hosts, with a cache of its own."""
    root = tmp_path / "fleet"
    for folder in ("inventories", "group_data", "catalogue/gpus", "files/moe_configs"):
        (root / folder).mkdir(parents=True)
    (root / "inventories/lab.py").write_text("quad = ['gpu1.lan', 'gpu2.lan']\n")
    (root / "group_data/quad.py").write_text(GROUP)
    (root / "rigup.lock").write_bytes((ROOT / "rigup.lock").read_bytes())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(root)
    return root


def planned(limit: str | None = None) -> tuple[KeptPlans, tuple[Plan, ...]]:
    project = load_project(None, limit)
    return KeptPlans(project), plan_project(project)


def test_what_was_kept_is_what_would_be_planned(fleet: Path) -> None:
    kept, plans = planned()
    assert not kept.there and kept.read() is None
    kept.keep(plans)
    again, _ = planned()
    assert again.there and again.read() == plans and len(plans) == 2


@pytest.mark.parametrize("inventory", ["seeds", "across_hosts", "demo"])
def test_every_kind_of_plan_comes_back_as_it_was(
    inventory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    project = load_project(str(ROOT / f"inventories/{inventory}.py"))
    plans = plan_project(project)
    KeptPlans(project).keep(plans)
    assert KeptPlans(project).read() == plans


CHANGES: dict[str, Callable[[Path], object]] = {
    "the rig": lambda root: (root / "group_data/quad.py").write_text(GROUP.replace("4x", "2x")),
    "a host more": lambda root: (root / "inventories/lab.py").write_text("quad = ['gpu1.lan', 'gpu2.lan', 'gpu3.lan']"),
    "the lock": lambda root: (root / "rigup.lock").write_text((root / "rigup.lock").read_text() + "\n# moved\n"),
    "a GPU of its own": lambda root: (root / "catalogue/gpus/own.toml").write_text("gpu = []\n"),
    "a tuned kernel": lambda root: (root / "files/moe_configs/E=8.json").write_text("{}"),
    "a host's own data": lambda root: (root / "inventories/lab.py").write_text(
        "quad = [('gpu1.lan', {'services': {}}), 'gpu2.lan']"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_fleet_that_is_described_otherwise_is_planned_anew(fleet: Path, change: str) -> None:
    kept, plans = planned()
    kept.keep(plans)
    CHANGES[change](fleet)
    assert not KeptPlans(load_project(None)).there


def test_a_link_to_nothing_as_an_editor_leaves_one_is_no_error(fleet: Path) -> None:
    kept, plans = planned()
    kept.keep(plans)
    for name in ("catalogue/gpus/.#own.toml", "files/moe_configs/loop"):
        (fleet / name).symlink_to(Path(name).name if "loop" in name else "ada@desk.4711:1")
    assert KeptPlans(load_project(None)).there
    (fleet / "catalogue/gpus/ada@desk.4711:1").write_text("gpu = []\n")
    assert not KeptPlans(load_project(None)).there


def test_a_limited_run_has_plans_of_its_own(fleet: Path) -> None:
    kept, plans = planned()
    kept.keep(plans)
    fewer, some = planned("gpu2.lan")
    assert not fewer.there
    fewer.keep(some)
    assert fewer.read() == plans[1:] and kept.read() == plans


def test_another_rigup_plans_anew(fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    (program / "catalogue/data").mkdir(parents=True)
    (program / "catalogue/data/gpus.toml").write_text("a figure\n")
    monkeypatch.setattr(kept_plans, "_PROGRAM", program)
    kept, plans = planned()
    kept.keep(plans)
    assert KeptPlans(load_project(None)).there
    (program / "catalogue/data/gpus.toml").write_text("b figure\n")
    os.utime(program / "catalogue/data/gpus.toml", ns=(1, 1))
    assert not KeptPlans(load_project(None)).there


@pytest.mark.parametrize("end", [0, 1, -1, "after the first plan"])
def test_what_was_cut_off_counts_as_not_kept(fleet: Path, end: int | str) -> None:
    kept, plans = planned()
    kept.keep(plans)
    whole = kept.path.read_bytes()
    kept.path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]) if isinstance(end, str) else whole[:end])
    assert kept.there and kept.read() is None


@pytest.mark.parametrize("line", [b'{"host": "gpu1.lan"}', b"[]", b"\xff", b""])
def test_what_is_no_plan_counts_as_not_kept(fleet: Path, line: bytes) -> None:
    kept, plans = planned()
    kept.keep(plans)
    kept.path.write_bytes(hashlib.sha256(line + b"\n").hexdigest().encode() + b"\n" + line + b"\n")
    assert kept.read() is None


def test_those_kept_longest_ago_go_and_what_is_large_is_not_kept(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_plans, "KEPT", 2)
    kept, plans = planned()
    kept.path.parent.mkdir(parents=True)
    for age, name in enumerate(("a", "b")):
        (kept.path.parent / f"{name}.jsonl").write_text("")
        os.utime(kept.path.parent / f"{name}.jsonl", (100 + age, 100 + age))
    kept.keep(plans)
    assert sorted(path.name for path in kept.path.parent.iterdir()) == sorted(("b.jsonl", kept.path.name))
    kept.path.unlink()
    monkeypatch.setattr(kept_plans, "MOST_BYTES", 100)
    kept.keep(plans)
    assert not kept.there


def test_a_cache_that_cannot_be_written_is_no_error(fleet: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    kept, plans = planned()
    kept.keep(plans)
    assert not kept.there and kept.read() is None
