"""OpenAI's own client for Python, in an environment that is kept in this user's cache.

Pinned by hash in slow/openai_client.sha256 (`sha256sum` of what `pip download openai` finds for Python 3.11).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from rigup.cache import cache_folder
from rigup.programs.build_environment import requirements
from tests.slow.test_real_sglang import install

WHEELS = Path(__file__).parent / "slow/openai_client.sha256"


def interpreter() -> Path:
    """The interpreter of the environment, which uv makes from hashes only."""
    files = {name: sha256 for sha256, name in (line.split() for line in WHEELS.read_text().splitlines())}
    listed = requirements(files, {})
    folder = cache_folder() / "tests" / f"openai-{hashlib.sha256(listed.encode()).hexdigest()[:16]}"
    if not (folder / "made").exists():
        install(folder, listed)
        (folder / "made").touch()
    return folder / "bin" / "python"
