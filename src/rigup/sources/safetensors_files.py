"""Finds the files of a safetensors checkpoint in a repository that an engine loads, without copies in other formats."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rigup.errors import InputError
from rigup.sources.bounded_http import read_json

MOST_VALUES = 2_000_000
MOST_NAMED = 20
BESIDE = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")
TEMPLATES = "additional_chat_templates/"
# Descriptions of the same weights in formats that no engine here reads, and files that only a trainer reads.
OTHER = re.compile(
    r"consolidated.*|.*\.(bin|pt|pth|msgpack|h5|onnx)\.index\.json|requirements.*\.txt|train.*\.json", re.IGNORECASE
)


@dataclass(frozen=True)
class SafetensorsFormat:
    """A way in which makers name the files of a checkpoint. title: what messages call it.

    stem: how weight files begin. config: the configuration. own: files beside the weights that no other format has.
    """

    title: str
    stem: str
    config: str
    own: re.Pattern[str]

    @property
    def index(self) -> str:
        """Which shard each tensor is in; absent where there is one file, and from some repositories."""
        return f"{self.stem}.safetensors.index.json"

    @property
    def whole(self) -> str:
        """All weights in one file."""
        return f"{self.stem}.safetensors"

    @property
    def shard(self) -> re.Pattern[str]:
        """One of several files."""
        return re.compile(rf"{self.stem}-([0-9]{{5}})-of-([0-9]{{5}})\.safetensors")

    def has_weights(self, paths: Iterable[str]) -> bool:
        """Whether a repository with these files has weights in this format."""
        return any(path in (self.whole, self.index) or self.shard.fullmatch(path) for path in paths)


TRANSFORMERS = SafetensorsFormat(
    "transformers' format", "model", "config.json", re.compile(r"model\.safetensors\.index\.json")
)
# Names of files: vLLM 0.33.0 model_loader/default_loader.py, transformers_utils/config.py, tokenizers/registry.py.
MISTRAL = SafetensorsFormat(
    "Mistral's own format",
    "consolidated",
    "params.json",
    re.compile(r"consolidated\.safetensors\.index\.json|params\.json|tokenizer\.model\.v[0-9].*"),
)
FORMATS = (TRANSFORMERS, MISTRAL)


def safetensors_files(
    repo: str, paths: Iterable[str], index: bytes | None, stored: SafetensorsFormat = TRANSFORMERS
) -> tuple[str, ...]:
    """The files of the checkpoint in one format out of all paths of a repository, weights first.

    index: the content of the format's index, None if the repository has none.
    Raises InputError if weights are missing.
    """
    there = set(paths)
    weights = _indexed(repo, index, stored) if index is not None else _numbered(there, stored)
    if not weights or (stored == MISTRAL and stored.config not in there):
        raise _without_weights(repo, there, stored)
    missing = [path for path in weights if path not in there]
    if missing:
        names = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"{repo}: {len(missing)} of {len(weights)} weight files are missing from the repository: {names}",
            "wait for the upload to finish, or choose another revision or checkpoint",
        )
    return (*weights, *sorted(path for path in there if _beside(path, stored)))


def _without_weights(repo: str, there: set[str], stored: SafetensorsFormat) -> InputError:
    """The error for a repository without weights in a format: it names the format that it has, or its files."""
    other = next((each for each in FORMATS if each != stored and each.has_weights(there)), None)
    if other is not None:
        return InputError(
            f"{repo}: the weights are in {other.title}, not in {stored.title}",
            f"delete its entry in catalogue/checkpoints/, then: rigup model add {repo}",
        )
    formats = sorted({path.rpartition(".")[2] for path in there if "/" not in path and "." in path})
    return InputError(
        f"{repo}: the repository has no safetensors weights",
        f"choose a checkpoint in another repository; this one has files of: {', '.join(formats[:MOST_NAMED])}",
    )


def _indexed(repo: str, index: bytes, stored: SafetensorsFormat) -> tuple[str, ...]:
    """All weight files that the index names."""
    try:
        names = set(read_json(index, MOST_VALUES)["weight_map"].values())
        if not all(isinstance(name, str) for name in names):
            raise ValueError("not a name")
        return tuple(sorted(names))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{repo}: {stored.index} is not a weight index", "choose another revision: this one is damaged"
        ) from None


def _numbered(there: set[str], stored: SafetensorsFormat) -> tuple[str, ...]:
    """The weights of a repository without an index: one file, or shards counted from 0 or from 1."""
    if stored.whole in there:
        return (stored.whole,)
    found = [match for match in map(stored.shard.fullmatch, sorted(there)) if match]
    if not found:
        return ()
    first, count = min(int(match[1]) for match in found), int(found[0][2])
    start = 0 if first == 0 else 1
    return tuple(f"{stored.stem}-{number:05}-of-{count:05}.safetensors" for number in range(start, start + count))


def _beside(path: str, stored: SafetensorsFormat) -> bool:
    """Whether a file is configuration, tokenizer, chat template or code of the model."""
    name = path.removeprefix(TEMPLATES) if path.endswith(".jinja") else path
    if stored.own.fullmatch(name):
        return True
    return (
        "/" not in name
        and name.endswith(BESIDE)
        and not OTHER.fullmatch(name)
        and not any(each.own.fullmatch(name) for each in FORMATS)
    )
