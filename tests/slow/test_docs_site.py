"""The documentation's site is built from the pages and from what rigup says of itself; each warning is an error."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rests_on("bin/docs", "docs", "docs-site", "src/rigup/cli", "src/rigup/commands"),
]


def test_the_site_is_built_without_a_warning() -> None:
    done = subprocess.run([ROOT / "bin/docs"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("index.html", "performance.html", "reference/commands.html", "reference/json.html"):
        assert (ROOT / "build/site" / page).is_file()
