"""Decides from rig, service, catalogue and lock what to run; works offline and without side effects."""
