"""The controlling machine's cache: source archives, finished builds, lab images. Safe to delete when nothing runs."""

from __future__ import annotations

import os
from pathlib import Path

from rigup.regular_files import home_folder


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME` or `~/.cache`, then `rigup`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or home_folder() / ".cache").absolute() / "rigup"
