"""A wheel on the package index by its file name."""

from __future__ import annotations

import zipfile

from rigup.sources import remote_wheel
from rigup.sources.package_index import project_files


def open_wheel(project: str, file_name: str) -> tuple[zipfile.ZipFile, str]:
    """The wheel of that name, and the sha256 that the index states for it ("" where it states none)."""
    file = next(file for file in project_files(project) if file.name == file_name)
    return remote_wheel.open_wheel(file), file.sha256 or ""
