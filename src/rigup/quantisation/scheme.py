"""What every quantisation scheme answers, what a stored tensor is, and which modules a scheme leaves as they are."""

from __future__ import annotations

import fnmatch
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MOST_PATTERNS = 200_000
LONGEST_PATTERN = 300
MOST_WILDCARDS = 8
# Tensors beside the weights: none of their numbers is a weight.
BESIDE = (
    "_scale",
    "_scale_inv",
    "_scale_2",
    "_scales",
    ".qscale_weight",
    ".qscale_act",
    ".scale",
    ".scales",
    "_global_scale",
    ".qzeros",
    "_zero_point",
    ".g_idx",
    "_g_idx",
    "_shape",
)


@dataclass(frozen=True, slots=True)
class StoredPart:
    """One tensor that a linear layer is stored as: the end of its name, dtype and shape as safetensors has them."""

    suffix: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Exclusions:
    """Modules that stay as they are: names, beginnings of names, parts of them, shell patterns, or "re:" and a pattern.

    `anywhere`: a plain name also counts as a part within dots (transformers' modules_to_not_convert).
    """

    names: frozenset[str] = frozenset()
    patterns: tuple[re.Pattern[str], ...] = ()
    anywhere: bool = False

    def __contains__(self, module: object) -> bool:
        if not isinstance(module, str):
            return False
        parts = module.split(".")
        beginnings = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
        if self.names & beginnings or any(pattern.match(module) for pattern in self.patterns):
            return True
        return self.anywhere and bool(self.names & set(parts))


@dataclass(frozen=True)
class Scheme(ABC):
    """How the weights of linear layers are stored.

    excluded: modules that the configuration leaves as they are.
    """

    excluded: Exclusions = Exclusions()

    @property
    def engine_name(self) -> str:
        """What vLLM and SGLang call it as `--quantization`, "" for none."""
        return ""

    @property
    @abstractmethod
    def catalogue(self) -> str:
        """Its name in the catalogue's checkpoints: "fp8_block128"."""

    @property
    def of_experts(self) -> str | None:
        """The catalogue's name for how experts are stored, where that differs; None where it does not."""
        return None

    def stored(self, module: str, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """The tensors of a linear layer without bias. module: its name, which decides whether it is quantised."""
        return plain(rows, columns) if self.leaves(module) else self.quantised(module, rows, columns)

    def leaves(self, module: str) -> bool:
        """Whether a module stays as it is."""
        return module in self.excluded

    def quantised(self, module: str, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """The tensors of a layer that does not stay as it is: weights, scales, and what else belongs to them."""
        return plain(rows, columns)

    def weights(self, name: str, dtype: str, elements: int) -> int:
        """How many weights of the model a stored tensor holds: more than its elements where several are packed."""
        return 0 if name.endswith(BESIDE) else elements


class Unquantised(Scheme):
    """16 bits a weight; float16 has bf16's name, being as large."""

    catalogue = "bf16"

    def weights(self, name: str, dtype: str, elements: int) -> int:
        """Every element."""
        return elements


def plain(rows: int, columns: int) -> tuple[StoredPart, ...]:
    """A linear layer that is not quantised."""
    return (StoredPart(".weight", "BF16", (rows, columns)),)


def exclusions(values: Any, anywhere: bool = False) -> Exclusions:
    """The exclusions that a list of a configuration says. Raises ValueError for what is not such a list."""
    if values is None:
        return Exclusions(anywhere=anywhere)
    if not isinstance(values, (list, tuple)) or len(values) > MOST_PATTERNS:
        raise ValueError("the list of modules that are not quantised is not a list of names")
    names, patterns = set[str](), list[re.Pattern[str]]()
    for value in values:
        if not isinstance(value, str) or len(value) > LONGEST_PATTERN:
            raise ValueError("the list of modules that are not quantised is not a list of names")
        if value.startswith("re:"):
            patterns.append(_expression(value[3:]))
        elif "*" in value or "?" in value:
            if value.count("*") > MOST_WILDCARDS:
                raise ValueError("a pattern of modules that are not quantised has too many wildcards")
            patterns.append(re.compile(fnmatch.translate(value)))
        else:
            names.add(value)
    return Exclusions(frozenset(names), tuple(patterns), anywhere)


def _expression(text: str) -> re.Pattern[str]:
    """A regular expression of a configuration, of the simple kind that those have: it cannot take exponential time."""
    if text.count("*") + text.count("+") > MOST_WILDCARDS or re.search(r"[*+}]\)*[*+{]|\)[*+{]", text):
        raise ValueError("a pattern of modules that are not quantised has a repetition within a repetition")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError):
        raise ValueError("a pattern of modules that are not quantised is not a regular expression") from None


def number(config: Mapping[str, Any], key: str, allowed: Iterable[int]) -> int:
    """A number of a configuration. Raises ValueError for anything else than those allowed."""
    found, fitting = config.get(key), tuple(allowed)
    if type(found) is not int or found not in fitting:
        raise ValueError(f"{key}: must be one of {', '.join(map(str, fitting))}")
    return found


def groups(columns: int, size: int) -> int:
    """How many groups of `size` a row of weights has; -1 takes a whole row as one."""
    return -(-columns // size) if size > 0 else 1
