"""Checkpoints on hosts: download, upload, sharing with the other hosts."""
