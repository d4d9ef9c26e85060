"""`rigup tune`: an engine's fused-MoE tuner on a host, and whether its result is faster.

May import run, project, operations and what lies below them.
"""
