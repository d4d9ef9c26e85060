"""Reads, and measures where it can, how the GPUs of a host are connected: `verify_links.py` is the program."""
