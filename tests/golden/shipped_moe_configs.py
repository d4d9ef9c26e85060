"""Writes which tuned fused-MoE kernels each release ships: `python -m tests.golden.shipped_moe_configs`.

Read are the names of files in the wheels on the package index, of every release in the catalogue, for NVIDIA's cards.
"""

from __future__ import annotations

import json
import re
import zipfile

from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.option_names import package
from rigup.planner.moe_config import SHIPPED
from tests.golden.remote_wheel import open_wheel

SOURCE = "names of the files in fused_moe/configs (vLLM) and configs/triton_*/ (SGLang) of each wheel, for NVIDIA"
NAME = re.compile(r".*/configs/(?:triton_[0-9_]+/)?(E=[0-9]+,N=[0-9]+,device_name=NVIDIA_[^/]+\.json)")


def shipped(wheel: zipfile.ZipFile) -> set[str]:
    """The names of a wheel's files."""
    return {found[1] for name in wheel.namelist() if (found := NAME.fullmatch(name))}


def ranges(versions: list[str], having: set[str]) -> str:
    """Runs of versions: "0.12.0..0.23.0 0.30.0"."""
    runs: list[list[str]] = []
    for before, version in zip(["", *versions], versions, strict=False):
        if version not in having:
            continue
        if before in having:
            runs[-1].append(version)
        else:
            runs.append([version])
    return " ".join(run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)


def collected(engine: str) -> dict[str, str]:
    """Names with the releases that have them."""
    versions = [release.version for release in load_catalogue().engines_by_name[engine].versions]
    found: dict[str, set[str]] = {}
    for version in versions:
        for name in shipped(open_wheel(engine, package(engine, version)["file"])[0]):
            found.setdefault(name, set()).add(version)
    return {name: ranges(versions, having) for name, having in sorted(found.items())}


if __name__ == "__main__":
    SHIPPED.write_text(json.dumps({"source": SOURCE, **{e: collected(e) for e in ("vllm", "sglang")}}, indent=1) + "\n")
