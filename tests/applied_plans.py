"""The plans that tests on machines apply, as bytes: what such a test rests on in place of the planner's sources.

A fleet is noted as the text of its files each time a test starts rigup in its folder. Planned again later, it gives the
same digest as long as the planner and the catalogue decide the same, however their sources have changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import tempfile
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from rigup.cache import cache_folder
from rigup.errors import RigupError

# What decides, and nothing that acts: not what a test on machines rests on, but the plans that come of it.
PLANNER = (
    "catalogue",
    "rigup.lock",
    "src/rigup/attention",
    "src/rigup/catalogue",
    "src/rigup/checkpoints",
    "src/rigup/commands",
    "src/rigup/layer_range.py",
    "src/rigup/planner",
    "src/rigup/project/fit_table.py",
    "src/rigup/project/planning.py",
    "src/rigup/quantisation",
    "src/rigup/tensor_bytes.py",
)
READ = ("catalogue", "files", "group_data", "inventories", "rigup.lock")
LARGEST_FILE = 2**20
# What plans say to people alone: no role, operation or run reads it.
SHOWN = frozenset(
    {
        "alternatives",
        "decode_at_concurrency",
        "decode_tokens_per_second",
        "figures",
        "quality",
        "silenced",
        "speculative",
        "traded",
    }
)

Fleet = dict[str, str]
"""The text of each file that planning reads, by path in the fleet's folder."""


def fleet_in(root: Path) -> Fleet:
    """The fleet that lies in a folder now."""
    return {str(path.relative_to(root)): path.read_text(errors="replace") for path in sorted(_files(root))}


def _files(root: Path) -> Iterator[Path]:
    for name in READ:
        top = root / name
        for path in [top] if top.is_file() else top.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.stat().st_size <= LARGEST_FILE:
                yield path


def keep(fleet: Fleet) -> str:
    """Puts a fleet into the cache. Returns its name there."""
    text = json.dumps(fleet, sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    path = _kept(name)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return name


def forget_others(names: Collection[str]) -> None:
    """Takes the fleets out of the cache that are not among these."""
    for path in _kept("*").parent.glob("*.json"):
        if path.stem not in names:
            path.unlink(missing_ok=True)


def kept(name: str) -> Fleet | None:
    """A fleet of the cache; None if it is gone."""
    path = _kept(name)
    return dict(json.loads(path.read_text())) if path.is_file() else None


def _kept(name: str) -> Path:
    return cache_folder() / "tests" / "fleets" / f"{name}.json"


@lru_cache(maxsize=4096)
def plans_of(name: str) -> str:
    """The digest of the plans that a fleet of the cache gets today; "" if it is gone."""
    fleet = kept(name)
    if fleet is None:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in fleet.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        said = [_planned(path) for path in sorted((root / "inventories").glob("*.py"))]
        text = json.dumps(said, sort_keys=True).replace(str(root), "")
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def plans_now(names: Collection[str], planner: str) -> dict[str, str]:
    """`plans_of` for each, with what another process has found for the same planner. planner: its digest."""
    path = cache_folder() / "tests" / "plans.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        found = json.loads(path.read_text()) if path.is_file() else {}
        known: dict[str, str] = found.get("plans", {}) if found.get("planner") == planner else {}
        if missing := [name for name in names if name not in known]:
            known |= {name: plans_of(name) for name in missing}
            path.write_text(json.dumps({"planner": planner, "plans": known}))
    return known


def _planned(inventory: Path) -> Any:
    """What the hosts of an inventory are to do; the kind of error where it cannot be planned."""
    from rigup.commands.swap_groups import as_groups
    from rigup.plan import plans_by_host
    from rigup.project.inventory import load_project
    from rigup.project.planning import plan_project

    try:
        plans = plans_by_host(plan_project(load_project(str(inventory))))
    except RigupError as error:
        return type(error).__name__
    except Exception as error:  # a fleet whose files a test broke on purpose
        return type(error).__name__
    return {host: [_acted_on(plan.model_dump(mode="json")) for plan in as_groups(each)] for host, each in plans.items()}


def _acted_on(value: Any) -> Any:
    """A plan without what it only says; of findings the rules."""
    match value:
        case {"rule": rule, "message": _}:
            return rule
        case dict():
            return {key: _acted_on(inner) for key, inner in value.items() if key not in SHOWN}
        case list():
            return [_acted_on(inner) for inner in value]
        case _:
            return value
