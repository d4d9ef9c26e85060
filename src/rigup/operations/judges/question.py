"""What an engine's judge is asked on a host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rigup import layout
from rigup.facts.probe import ProbedGpu
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.weights.checkpoint import FileSource
from rigup.plan import Checkpoint, Plan

_TOKEN_SECONDS = 60
_ALL_THERE = 'for file in "$0" "$@"; do [ -e "$file" ] || exit 1; done'
_AWAIT = 'i=0; while [ ! -e "$1" ] && [ "$i" -lt "$2" ]; do sleep 1; i=$((i+1)); done'


@dataclass(frozen=True)
class Question:
    """One plan on one host.

    cards: of the plan, in its order. free_mib: of each, () if that is not known. build: the folder of the build.
    folder: the worker's own, which holds what is asked and the answer. file: what only root writes. source: of the
    checkpoint's files.
    """

    plan: Plan
    cards: tuple[ProbedGpu, ...]
    free_mib: tuple[int, ...]
    build: str
    folder: str
    file: str
    source: FileSource

    @property
    def answer(self) -> str:
        """The file that the judge writes."""
        return f"{self.folder}/answer"

    def folders(self, host: Host, fetch: Callable[[Host, Checkpoint, str, FileSource], None]) -> dict[str, str]:
        """By the folder of weights that a checkpoint of the plan will have, where what is read of its files is now.

        fetch: puts that into a folder, for a checkpoint whose files are not there yet. Raises HostFailed.
        """
        found = {}
        for number, checkpoint in enumerate(self.plan.checkpoints):
            assert checkpoint.revision is not None
            weights = layout.weights_folder(checkpoint.repo, checkpoint.revision)
            files = (f"{weights}/{file.path}" for file in checkpoint.files)
            if remote.run(host, "sh", "-c", _ALL_THERE, *files).ok:
                found[weights] = weights
                continue
            if self.source.token_file:  # the step that downloads the weights writes it, beside this one
                remote.script(host, _AWAIT, self.source.token_file, str(_TOKEN_SECONDS), timeout=_TOKEN_SECONDS + 30)
            found[weights] = f"{self.folder}/files-{number}"
            fetch(host, checkpoint, found[weights], self.source)
        return found


def moved(words: Iterable[str], folders: Mapping[str, str]) -> list[str]:
    """Words of a command with these folders in place of others, within JSON too."""
    found = list(words)
    for weights, there in folders.items():
        found = [word.replace(weights, there) for word in found]
    return found
