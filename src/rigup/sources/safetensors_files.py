"""Finds the files of a safetensors checkpoint in a repository that an engine loads, without copies in other formats."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rigup.errors import InputError
from rigup.sources.bounded_http import read_json

INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"
SHARD = re.compile(r"model-([0-9]{5})-of-([0-9]{5})\.safetensors")
MOST_VALUES = 2_000_000
MOST_NAMED = 20
BESIDE = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")
TEMPLATES = "additional_chat_templates/"
# Descriptions of the same weights in another format, and files that only a trainer reads.
OTHER = re.compile(
    r"consolidated.*|params\.json|.*\.(bin|pt|pth|msgpack|h5|onnx)\.index\.json|requirements.*\.txt|train.*\.json",
    re.IGNORECASE,
)


def safetensors_files(repo: str, paths: Iterable[str], index: bytes | None) -> tuple[str, ...]:
    """The files of the checkpoint out of all paths of a repository, weights first.

    index: the content of `INDEX`, None if the repository has none.
    Raises InputError if weights are missing.
    """
    there = set(paths)
    weights = _indexed(repo, index) if index is not None else _numbered(there)
    if not weights:
        formats = sorted({path.rpartition(".")[2] for path in there if "/" not in path and "." in path})
        raise InputError(
            f"{repo}: the repository has no safetensors weights",
            f"choose a checkpoint in another repository; this one has files of: {', '.join(formats[:MOST_NAMED])}",
        )
    missing = [path for path in weights if path not in there]
    if missing:
        names = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"{repo}: {len(missing)} of {len(weights)} weight files are missing from the repository: {names}",
            "wait for the upload to finish, or choose another revision or checkpoint",
        )
    return (*weights, *sorted(path for path in there if _beside(path)))


def _indexed(repo: str, index: bytes) -> tuple[str, ...]:
    """All weight files that the index names."""
    try:
        names = set(read_json(index, MOST_VALUES)["weight_map"].values())
        if not all(isinstance(name, str) for name in names):
            raise ValueError("not a name")
        return tuple(sorted(names))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{repo}: {INDEX} is not a weight index", "choose another revision: this one is damaged"
        ) from None


def _numbered(there: set[str]) -> tuple[str, ...]:
    """The weights of a repository without an index: one file, or shards counted from 0 or from 1."""
    if WHOLE in there:
        return (WHOLE,)
    found = [match for match in map(SHARD.fullmatch, sorted(there)) if match]
    if not found:
        return ()
    first, count = min(int(match[1]) for match in found), int(found[0][2])
    start = 0 if first == 0 else 1
    return tuple(f"model-{number:05}-of-{count:05}.safetensors" for number in range(start, start + count))


def _beside(path: str) -> bool:
    """Whether a file is configuration, tokenizer, chat template or code of the model."""
    name = path.removeprefix(TEMPLATES) if path.endswith(".jinja") else path
    return "/" not in name and name.endswith(BESIDE) and not OTHER.fullmatch(name)
