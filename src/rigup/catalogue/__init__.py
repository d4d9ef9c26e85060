"""Facts about GPUs, models, checkpoints and engines: data files with sources, and the code that loads them."""
