"""Versions of engines, how they compare, and facts that hold for a range of them."""

import functools
from typing import Annotated, TypeVar

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator

from rigup.units import Frozen


@functools.cache
def version_key(version: str) -> Version:
    """A key that sorts versions of one engine; llama.cpp's build numbers ("b11434") count as whole numbers."""
    return Version(version.removeprefix("b"))


def _comparable(text: str) -> str:
    try:
        version_key(text)
    except InvalidVersion:
        raise ValueError(f'"{text}" is not a version like "0.33.0" or "b11434"') from None
    return text


Entry = TypeVar("Entry", bound=Frozen)
VersionText = Annotated[str, AfterValidator(_comparable)]


class Ranged(Frozen):
    """A fact about the versions from `since` (included) to `before` (excluded); without a bound, about all of them."""

    since: VersionText | None = None
    before: VersionText | None = None
    source: str

    def holds(self, version: str) -> bool:
        """Whether the fact applies to this version."""
        key = version_key(version)
        after_start = self.since is None or version_key(self.since) <= key
        return after_start and (self.before is None or key < version_key(self.before))


def of_release(entry: Entry, version: str, *fields: str) -> Entry:
    """The same with a release in the place of {version} in some of its fields: texts, or tables of texts."""
    filled: dict[str, object] = {}
    for field in fields:
        said = getattr(entry, field)
        if isinstance(said, dict):
            filled[field] = {key: text.replace("{version}", version) for key, text in said.items()}
        else:
            filled[field] = said.replace("{version}", version)
    return entry.model_copy(update=filled)


@functools.cache
def in_ranges(version: str, ranges: str) -> bool:
    """Whether a version is in one of the ranges: "0.12.0..0.23.0 0.30.0"; an empty text matches nothing."""
    key = version_key(version)
    for span in ranges.split():
        first, _, last = span.partition("..")
        if version_key(first) <= key <= version_key(last or first):
            return True
    return False


def listed_version(version: str, versions: tuple[str, ...]) -> str:
    """The version of a list whose facts are taken for this one: itself if it is there, else the newest before it.

    versions: ascending and not empty; a version before all of them gets the first.
    """
    older = [listed for listed in versions if version_key(listed) <= version_key(version)]
    return version if version in versions else older[-1] if older else versions[0]
