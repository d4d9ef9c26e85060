"""What is known about GPUs, models, checkpoints and engines: data files with sources, and their loaders."""

from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.model import Model

__all__ = ["Catalogue", "CheckpointEntry", "Model", "load_catalogue"]
