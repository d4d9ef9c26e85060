"""Texts for systemd and the kernel's firewall: units, Quadlet, nftables, drop-ins. Pure.

May import nouns, catalogue and planner.
"""
