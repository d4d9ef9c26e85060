"""Decides, from rig, service, catalogue and lock, what will run; offline and without side effects."""
