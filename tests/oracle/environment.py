"""The Python environment that a judge runs in, made of what `rigup lock` pins today; kept in this machine's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from rigup.cache import cache_folder
from rigup.catalogue.catalogue import load_catalogue
from rigup.service import EngineName
from rigup.sources.python_environment import resolve_environment
from tests.unit.sources.local_uv import local_uv

SECONDS = 1800


def judge_environment(engine: EngineName, version: str) -> Path:
    """The folder of an environment with the engine's CUDA wheel, for the Python of this machine: 9 GB.

    An older one of the same engine makes room for it.
    """
    release = load_catalogue().engines_by_name[engine].version(version)
    assert release is not None
    recipe = release.environment("cuda")
    assert recipe is not None
    python = ".".join(map(str, sys.version_info[:2]))
    here = recipe.model_copy(update={"python": python, "python_from": "os"})
    found = resolve_environment(local_uv(), release.model_copy(update={"environments": (here,)}), "cuda", "x86_64")
    files = found.environment.files
    lines = [f"{'=='.join(name.split('-')[:2])} --hash=sha256:{sha256}\n" for name, sha256 in sorted(files.items())]
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
    folder = cache_folder() / "tests" / "judges" / engine / digest
    if not (folder / "complete").exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
        _make(folder, lines)
    return folder


def _make(folder: Path, lines: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    listed = folder / "requirements.txt"
    listed.write_text("".join(lines))
    pip = (folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir", "--require-hashes")
    # constraints of this machine's own may exclude what is pinned
    surroundings = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    subprocess.run([*pip, "-r", listed], check=True, timeout=SECONDS, env=surroundings)
    (folder / "complete").touch()
