"""Which files of a repository are a checkpoint in safetensors: what an engine loads, once, and in no other format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from rigup.errors import InputError

INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"
SHARD = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")
BESIDE = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")
TEMPLATES = "additional_chat_templates/"
# Another format's description of the same weights, and what only a trainer reads.
OTHER = re.compile(
    r"consolidated.*|params\.json|.*\.(bin|pt|pth|msgpack|h5|onnx)\.index\.json|requirements.*\.txt|train.*\.json",
    re.IGNORECASE,
)


def safetensors_files(repo: str, paths: Iterable[str], index: bytes | None) -> tuple[str, ...]:
    """The files of the checkpoint among the paths of a repository, weights first.

    index: the content of `INDEX`, None where the repository has none.
    Raises InputError where weights are missing.
    """
    there = set(paths)
    weights = _indexed(repo, index) if index is not None else _numbered(there)
    if not weights:
        formats = sorted({path.rpartition(".")[2] for path in there if "/" not in path and "." in path})
        raise InputError(f"{repo}: no safetensors weights in the repository", f"it has files of: {', '.join(formats)}")
    missing = [path for path in weights if path not in there]
    if missing:
        names = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"{repo}: {len(missing)} of {len(weights)} weight files are missing in the repository: {names}",
            "an upload that is still going on, or was given up; take another revision or checkpoint",
        )
    return (*weights, *sorted(path for path in there if _beside(path)))


def _indexed(repo: str, index: bytes) -> tuple[str, ...]:
    """What the index names: every tensor's file."""
    try:
        names = json.loads(index)["weight_map"].values()
        return tuple(sorted({str(name) for name in names}))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{repo}: {INDEX} is no index of weights", "the repository is damaged at this revision"
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
