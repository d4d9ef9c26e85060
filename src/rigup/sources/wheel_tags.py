"""Chooses the wheel of a package for a host, by the platform tags of the oldest supported system, best first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from packaging.tags import Tag, compatible_tags, cpython_tags, create_compatible_tags_selector
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from rigup.artifacts import Architecture
from rigup.sources.package_index import IndexFile

# glibc of Ubuntu 22.04, the oldest supported on a host: wheels for it run on every supported system.
GLIBC = (2, 35)
OLDEST = {"x86_64": 5, "aarch64": 17}
NAMED = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}

File = TypeVar("File", bound=IndexFile)


def platform_name(architecture: Architecture) -> str:
    """The platform, in the form of uv's --python-platform."""
    return f"{architecture}-manylinux_{GLIBC[0]}_{GLIBC[1]}"


def target_tags(architecture: Architecture, python: str) -> tuple[Tag, ...]:
    """The tags that a host accepts for a Python minor version, best first."""
    minor = tuple(int(part) for part in python.split(".")[:2])
    platforms = list(_platforms(architecture))
    return (*cpython_tags(minor, platforms=platforms), *compatible_tags(minor, f"cp{minor[0]}{minor[1]}", platforms))


def best_wheel(files: Iterable[File], tags: Sequence[Tag]) -> File | None:
    """The wheel with the best tag, None if no file has any of the tags; among equals, the last by name."""
    tagged = []
    for file in sorted(files, key=lambda entry: entry.name):
        with suppress(InvalidWheelFilename):
            tagged.append((file, parse_wheel_filename(file.name)[3]))
    return next(create_compatible_tags_selector(tags)(reversed(tagged)), None)


def by_release(files: Iterable[File]) -> dict[Version, list[File]]:
    """The wheels among the files of a project, by release."""
    found: dict[Version, list[File]] = {}
    for file in files:
        try:
            found.setdefault(parse_wheel_filename(file.name)[1], []).append(file)
        except (InvalidWheelFilename, InvalidVersion):
            continue
    return found


def _platforms(architecture: Architecture) -> Iterator[str]:
    for minor in range(GLIBC[1], OLDEST[architecture] - 1, -1):
        yield f"manylinux_2_{minor}_{architecture}"
        if minor in NAMED:
            yield f"{NAMED[minor]}_{architecture}"
    yield f"linux_{architecture}"
