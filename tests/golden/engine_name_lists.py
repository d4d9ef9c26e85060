"""Adds the names of a newer engine version to the catalogue, read from its wheel on the package index.

    python -m tests.golden.engine_name_lists vllm-0.34.0-cp38-abi3-manylinux_2_28_x86_64.whl

It extends flags/<engine>.json and the engine's part of moe_configs.json (names of tuned kernels, for the shapes already
listed there). Fixed choices of options ("values") are assumed to be those of the version before: compare them with the
engine's sources.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterable
from typing import Any

from rigup.catalogue.engine_names import read_names
from rigup.catalogue.engines import version_key
from rigup.catalogue.option_names import FOLDER
from rigup.planner.moe_config import SHIPPED
from tests.golden.remote_wheel import open_wheel

CONFIG = re.compile(r".*/configs/(?:triton_[^/]*/)?(E=[^/]*(?<!_down)\.json)")
SHAPE = re.compile(r"(E=\d+,N=\d+),device_name=NVIDIA_")
Ranges = dict[str, str]


def extended(ranges: Ranges, names: Iterable[str], last: str, version: str) -> Ranges:
    """The versions by name, with a version that knows these names. last: the newest version so far."""
    found = dict(ranges)
    for name in names:
        *earlier, latest = found.get(name, "").split() or [""]
        first, _, end = latest.partition("..")
        span = f"{first}..{version}" if (end or first) == last else f"{latest} {version}".strip()
        found[name] = " ".join([*earlier, span])
    return dict(sorted(found.items()))


def with_version(lists: dict[str, Any], version: str, options: set[str], variables: set[str]) -> dict[str, Any]:
    """A flags file with a version that is newer than all in it. Raises ValueError if it is not."""
    last = lists["versions"][-1]
    if version_key(version) <= version_key(last):
        raise ValueError(f"{version} is not newer than {last}")
    new = copy.deepcopy(lists)
    new["versions"].append(version)
    new["options"] = extended(lists["options"], options, last, version)
    new["variables"] = extended(lists["variables"], variables, last, version)
    for option, values in lists["values"].items():
        known = [value for value, ranges in values.items() if ranges.split()[-1].rpartition("..")[2] == last]
        new["values"][option] = values | {value: extended(values, [value], last, version)[value] for value in known}
    return new


def main(file: str) -> None:
    """Reads a wheel and rewrites both files."""
    engine, version = file.split("-")[:2]
    flags = FOLDER / f"{engine}.json"
    lists = json.loads(flags.read_text())
    wheel, sha256 = open_wheel(engine, file)
    with wheel:
        new = with_version(lists, version, *read_names(engine, wheel))
        members = wheel.namelist()
    new["packages"][version] = {"file": file, "sha256": sha256}
    flags.write_text(json.dumps(new, indent=0) + "\n")
    shipped = json.loads(SHIPPED.read_text())
    shapes = {shape[1] for name in (*shipped["vllm"], *shipped["sglang"]) if (shape := SHAPE.match(name))}
    configs = {match[1] for member in members if (match := CONFIG.fullmatch(member))}
    known = {name for name in configs if (shape := SHAPE.match(name)) and shape[1] in shapes}
    shipped[engine] = extended(shipped[engine], known, lists["versions"][-1], version)
    SHIPPED.write_text(json.dumps(shipped, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
