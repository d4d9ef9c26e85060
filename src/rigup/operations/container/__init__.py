"""Container images on hosts, and NVIDIA's container toolkit that gives them GPUs."""
