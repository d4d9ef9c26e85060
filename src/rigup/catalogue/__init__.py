"""Facts about GPUs, models, checkpoints and engines: data files with sources, and their loaders."""
