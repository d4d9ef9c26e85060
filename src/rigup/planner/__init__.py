"""Decides, from rig, service, catalogue and lock, what will run; offline and without side effects."""

from rigup.planner.decide import Decision, decide, plan

__all__ = ["Decision", "decide", "plan"]
