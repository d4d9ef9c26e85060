"""Which option names, option values and environment variables each pinned engine version knows.

They come from the engines' own packages; `data/engines/flags/*.json` names each package with its sha256. Each name
there has the range of versions that know it: "0.12.0..0.33.0", or several ranges.
"""

import difflib
import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rigup.artifacts import Architecture, Sha256, Variant
from rigup.catalogue import abilities, versions
from rigup.catalogue.abilities import Kind
from rigup.catalogue.versions import in_ranges
from rigup.service import EngineName
from rigup.units import Frozen

FOLDER = Path(__file__).parent / "data" / "engines" / "flags"
PARSER_OPTIONS: dict[str, Kind] = {"--tool-call-parser": "tool_parsers", "--reasoning-parser": "reasoning_parsers"}
OWN_PREFIXES = {"vllm": ("VLLM_",), "sglang": ("SGLANG_", "SGL_"), "llama.cpp": ("LLAMA_ARG_", "LLAMA_API_")}


class NameList(Frozen):
    """The names that one package knows; a fleet keeps the list if the toolkit does not have the package.

    file, sha256: the package's. variant, architecture: of the builds that use it; None for all, as of a source archive.
    """

    engine: EngineName
    version: str
    variant: Variant | None = None
    architecture: Architecture | None = None
    file: str
    sha256: Sha256
    options: frozenset[str]
    variables: frozenset[str]

    def of_build(self, build: tuple[str, str, str, str]) -> bool:
        """Whether it says what a build knows: engine, version, variant, architecture."""
        own = (self.engine, self.version, self.variant, self.architecture)
        return all(mine in (None, its) for mine, its in zip(own, build, strict=True))


@functools.cache
def known_options(engine: str, version: str) -> frozenset[str]:
    """Every option name, short and long, that the version's server accepts."""
    return _known(engine, _lists(engine)["options"], version)


@functools.cache
def known_variables(engine: str, version: str) -> frozenset[str]:
    """Every environment variable of the engine that the version reads."""
    return _known(engine, _lists(engine)["variables"], version)


@functools.cache
def known_values(engine: str, version: str, option: str) -> frozenset[str]:
    """The values that an option with fixed choices accepts; empty if the choice is open or unknown."""
    fixed = _known(engine, _lists(engine)["values"].get(option, {}), version)
    kind = PARSER_OPTIONS.get(option)
    return fixed | abilities.known(engine, kind, version) if kind else fixed


def listed_version(engine: str, version: str) -> str:
    """The version whose names apply to this one: itself if its names are listed, otherwise the newest listed before it.

    A fleet may add a version whose names the toolkit does not list yet.
    """
    return versions.listed_version(version, tuple(_lists(engine)["versions"]))


def package(engine: str, version: str) -> dict[str, str]:
    """The package that the lists were read from: its `file` name and `sha256`."""
    found: dict[str, str] = _lists(engine)["packages"].get(version, {})
    return found


def is_own_variable(engine: str, name: str) -> bool:
    """Whether a variable belongs to the engine. Libraries' variables (NCCL_, CUDA_, OMP_) are not checked."""
    return name.startswith(OWN_PREFIXES[engine])


def last_version_with(engine: str, kind: str, name: str) -> str | None:
    """The last version that knew an option ("options") or a variable ("variables"); None if none did."""
    ranges = _lists(engine)[kind].get(name)
    return ranges.split()[-1].rpartition("..")[2] if ranges else None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar to this one; None if none is."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return close[0] if close else None


@functools.cache
def _lists(engine: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((FOLDER / f"{engine.replace('.', '_')}.json").read_text())
    return data


def _known(engine: str, table: dict[str, str], version: str) -> frozenset[str]:
    listed = listed_version(engine, version)
    return frozenset(name for name, ranges in table.items() if in_ranges(listed, ranges))
