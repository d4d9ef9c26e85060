"""Which kernels an engine takes for a model on a kind of card, as its own code said where no card was.

`python -m tests.oracle.tables` writes the tables, one a release, from what `tests.oracle.ask` was answered
(docs/judges.md). Names are those that the engine's log has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from rigup.catalogue.asked_releases import nearest_release
from rigup.catalogue.data_files import DATA
from rigup.catalogue.versions import version_key
from rigup.regular_files import read_text
from rigup.service import EngineName

FOLDER = DATA / "engines" / "kernels"
Kernels = Mapping[str, tuple[str, ...]]
"""By the part of a step that they compute: "attention", "linear", "experts", "sampling"."""


class KernelTable(NamedTuple):
    """What one release was asked. kernels: by kind of model, scheme, KV cache and compute capability.

    unable: by kind of model and compute capability, why it has no attention for it.
    """

    version: str
    kernels: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Mapping[str, list[str]]]]]]
    unable: Mapping[str, Mapping[str, str]]


@cache
def kernel_table(engine: EngineName, version: str) -> KernelTable | None:
    """The table of a release, else of the next one that was asked, else of the last; None for an engine without.

    Another release may take other kernels: see `was_asked`.
    """
    nearest = nearest_release(FOLDER, engine, version)
    if not nearest:
        return None
    content: dict[str, Any] = json.loads(read_text(FOLDER / f"{engine}-{nearest}.json"))
    return KernelTable(content["version"], content["kernels"], content["unable"])


def was_asked(engine: EngineName, version: str) -> bool:
    """Whether this release was asked."""
    table = kernel_table(engine, version)
    return table is not None and version_key(table.version) == version_key(version)


class KernelKey(NamedTuple):
    """What kernels depend on. kind: of the model. scheme: of the weights. capability: of all cards."""

    kind: str
    scheme: str
    cache_type: str
    capability: str


def kind_of(architecture: str, experts: int) -> str:
    """The architecture, for some classes are of models with experts and of models without."""
    return f"{architecture} with experts" if experts else architecture


def kernels_of(engine: EngineName, version: str, key: KernelKey) -> Kernels:
    """The kernels by part; {} where nobody asked."""
    table = kernel_table(engine, version)
    if table is None:
        return {}
    found = table.kernels.get(key.kind, {}).get(key.scheme, {}).get(key.cache_type, {}).get(key.capability, {})
    return {part: tuple(names) for part, names in found.items()}
