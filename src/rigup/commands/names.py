"""Names in every engine's command line: the path of the weights, and the name that clients request."""

from __future__ import annotations

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.layout import weights_folder
from rigup.plan import Checkpoint
from rigup.planner.candidate import Candidate

UNPINNED = "main"


def model_path(entry: CheckpointEntry, checkpoint: Checkpoint) -> str:
    """The path for the engine of an entry of the catalogue: a file of the checkpoint, or its folder.

    An unpinned revision appears as "main", and a GGUF file whose name is not known yet as its quantisation.
    """
    folder = weights_folder(checkpoint.repo, checkpoint.revision or UNPINNED)
    if entry.scheme == "gguf" and not checkpoint.entry:
        return f"{folder}/<{checkpoint.quant}>.gguf"
    return f"{folder}/{checkpoint.entry}" if checkpoint.entry else folder


def served_name(candidate: Candidate) -> str:
    """The model's name in requests: the user's choice, or the model's own in lower case."""
    return candidate.service.served_name or candidate.model.name.lower()
