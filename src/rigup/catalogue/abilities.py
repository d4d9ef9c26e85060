"""What each release of an engine can serve: model architectures, quantisations, parsers of tool calls and reasoning.

Read from the engines' own packages; `data/engines/abilities/*.json` names each package with its sha256. A name there
is followed by the versions that have it, as in the lists of option names.
"""

import functools
import json
from pathlib import Path
from typing import Any, Literal, get_args

from rigup.artifacts import Sha256
from rigup.catalogue.versions import Ranged, VersionText, in_ranges, listed_version
from rigup.service import EngineName
from rigup.units import Frozen

FOLDER = Path(__file__).parent / "data" / "engines" / "abilities"

Kind = Literal["architectures", "conversions", "layer_split_only", "quantizations", "tool_parsers", "reasoning_parsers"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Addition(Ranged):
    """One ability that a fleet gives an engine beyond what rigup has read: of a fork, a plugin, a later release."""

    name: str


class AbilityList(Frozen):
    """What one package's release can serve, kept by a fleet that has locked a release that the toolkit has not read.

    file, sha256: the package's. architectures: names of classes as `config.json` has them; llama.cpp's as
    `general.architecture` of a GGUF has them. conversions: "class=architecture", what llama.cpp makes of a class.
    layer_split_only: architectures that llama.cpp cannot split by tensor. quantizations: names of methods as the engine
    registers them, which need not be the `quant_method` of a config; llama.cpp's are types of tensors.
    """

    engine: EngineName
    version: VersionText
    file: str
    sha256: Sha256
    architectures: frozenset[str]
    conversions: frozenset[str] = frozenset()
    layer_split_only: frozenset[str] = frozenset()
    quantizations: frozenset[str]
    tool_parsers: frozenset[str] = frozenset()
    reasoning_parsers: frozenset[str] = frozenset()

    def names(self, kind: Kind) -> frozenset[str]:
        """Everything of one kind."""
        found: frozenset[str] = getattr(self, kind)
        return found


class Abilities(Frozen):
    """What one release can serve. own: the fleet's list of it. added: what engine files add, name to source."""

    engine: EngineName
    version: VersionText
    own: AbilityList | None = None
    added: dict[Kind, dict[str, str]] = {}

    @property
    def read(self) -> bool:
        """Whether its own package was read; otherwise it counts as the newest one before it that was."""
        return self.own is not None or self.version in _lists(self.engine)["versions"]

    @property
    def listed(self) -> str:
        """The version whose package says so."""
        return self.version if self.own else _listed(self.engine, self.version)

    def has(self, kind: Kind, name: str) -> bool:
        """Whether it has something by that name."""
        if name in self.added.get(kind, ()):
            return True
        if self.own is not None:
            return name in self.own.names(kind)
        return in_ranges(self.listed, _lists(self.engine).get(kind, {}).get(name, ""))

    def lacks(self, kind: Kind, name: str) -> bool:
        """Whether its package was read and has nothing by that name."""
        return self.read and not self.has(kind, name)

    def names(self, kind: Kind) -> frozenset[str]:
        """Everything of one kind."""
        read = self.own.names(kind) if self.own else known(self.engine, kind, self.version)
        return read.union(self.added.get(kind, ()))

    def source(self, kind: Kind, name: str) -> str:
        """Where that it has something is from: the package with its sha256, or what an engine file says."""
        if (said := self.added.get(kind, {}).get(name)) is not None:
            return said
        read = {"file": self.own.file, "sha256": self.own.sha256} if self.own else package(self.engine, self.listed)
        return f"{read['file']}, sha256 {read['sha256']}"

    def converted(self, architecture: str) -> str | None:
        """What llama.cpp's converter calls an architecture of a `config.json`, or None if it does not convert it."""
        return _conversions(self.names("conversions")).get(architecture)


def package(engine: str, version: str) -> dict[str, str]:
    """The package that a version was read from: its `file` name and `sha256`; empty if the toolkit has not read it."""
    found: dict[str, str] = _lists(engine)["packages"].get(version, {})
    return found


@functools.cache
def _conversions(pairs: frozenset[str]) -> dict[str, str]:
    """What llama.cpp calls each class."""
    return {name: gguf for name, _, gguf in (pair.partition("=") for pair in sorted(pairs, reverse=True))}


@functools.cache
def known(engine: str, kind: Kind, version: str) -> frozenset[str]:
    """Everything of one kind in the toolkit's list of a version."""
    listed = _listed(engine, version)
    return frozenset(name for name, ranges in _lists(engine).get(kind, {}).items() if in_ranges(listed, ranges))


@functools.cache
def _listed(engine: str, version: str) -> str:
    return listed_version(version, tuple(_lists(engine)["versions"]))


@functools.cache
def _lists(engine: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((FOLDER / f"{engine.replace('.', '_')}.json").read_text())
    return data
