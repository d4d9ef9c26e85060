"""Finds the GGUF files of one quantisation in a repository by their names, and checks that no shard is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rigup.errors import InputError

SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})")
QUANT = re.compile(r"(?:^|[-._])((?:UD[-_])?(?:I?Q\d\w*|TQ\d_\d|BF16|F16|F32|MXFP4\w*))$", re.IGNORECASE)
NOT_WEIGHTS = ("mmproj", "imatrix")
MOST_NAMED = 30


@dataclass(frozen=True, order=True)
class GgufSet:
    """One model in one file (`count` is 0) or in `count` shards. `stem`: folder and name without the shard number."""

    stem: str
    count: int

    @property
    def paths(self) -> tuple[str, ...]:
        """All files of the set."""
        if not self.count:
            return (f"{self.stem}.gguf",)
        return tuple(f"{self.stem}-{number:05}-of-{self.count:05}.gguf" for number in range(1, self.count + 1))

    @property
    def quant(self) -> str:
        """The quantisation in the file name, as hubs write it; the whole name if it contains none."""
        name = self.stem.rpartition("/")[2]
        found = QUANT.search(name)
        return found[1].upper().replace("UD_", "UD-") if found else name


def gguf_files(repo: str, quant: str, entry: str, paths: Iterable[str]) -> tuple[str, ...]:
    """The files of one quantisation, out of all paths of a repository.

    entry: the file that the catalogue names, "" for none; it selects one of several sets of the same quantisation.
    Raises InputError if the repository has no set, an incomplete set, or several sets of this quantisation.
    """
    there = set(paths)
    found = _sets(there)
    named = [candidate for candidate in found if entry and candidate == _set_of(entry)]
    fitting = named or [candidate for candidate in found if candidate.quant.lower() == quant.lower()]
    if not fitting:
        known = ", ".join(sorted({candidate.quant for candidate in found})[:MOST_NAMED]) or "none"
        raise InputError(f"{repo}: the repository has no GGUF of quantisation {quant}", f"choose from: {known}")
    if len(fitting) > 1:
        more = f" and {len(fitting) - MOST_NAMED} more" if len(fitting) > MOST_NAMED else ""
        # a set may claim 99,999 names, so that only the named ones are written out
        names = ", ".join(candidate.paths[0] for candidate in fitting[:MOST_NAMED]) + more
        raise InputError(
            f"{repo}: the repository has {quant} more than once: {names}",
            "choose one: set entry in catalogue/checkpoints/",
        )
    chosen = fitting[0]
    _refuse_incomplete(repo, quant, chosen, there)
    return chosen.paths


def gguf_quants(paths: Iterable[str]) -> tuple[str, ...]:
    """The quantisations among the paths of a repository."""
    return tuple(sorted({candidate.quant for candidate in _sets(paths)}))


def _refuse_incomplete(repo: str, quant: str, chosen: GgufSet, there: set[str]) -> None:
    missing = [path for path in chosen.paths if path not in there]
    if missing:
        have = len(chosen.paths) - len(missing)
        names = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"{repo}: {quant} is incomplete: {have} of {chosen.count} shards exist; missing: {names}",
            "wait for the upload to finish, or choose another revision or quantisation",
        )


def _sets(paths: Iterable[str]) -> list[GgufSet]:
    found: dict[GgufSet, None] = {}
    for path in sorted(paths):
        name = path.rpartition("/")[2].lower()
        if name.endswith(".gguf") and not any(word in name for word in NOT_WEIGHTS):
            found[_set_of(path)] = None
    return list(found)


def _set_of(path: str) -> GgufSet:
    """The set that a file belongs to, judged by its name."""
    bare = path.removesuffix(".gguf")
    split = SPLIT.fullmatch(bare)
    return GgufSet(split["stem"], int(split["count"])) if split else GgufSet(bare, 0)
