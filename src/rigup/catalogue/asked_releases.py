"""Releases of an engine that its own code was asked about: a file each in a folder of the catalogue's data."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from pathlib import Path

from rigup.catalogue.versions import version_key


@cache
def nearest_release(folder: Path, engine: str, version: str) -> str:
    """This release, else the next one that was asked, else the last; "" for an engine without."""
    releases = sorted(_releases(folder, engine), key=version_key)
    if not releases:
        return ""
    return releases[min(bisect_left(releases, version_key(version), key=version_key), len(releases) - 1)]


@cache
def _releases(folder: Path, engine: str) -> tuple[str, ...]:
    return tuple(path.stem.removeprefix(f"{engine}-") for path in folder.glob(f"{engine}-*.json"))
