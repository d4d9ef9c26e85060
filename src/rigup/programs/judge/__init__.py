"""Judges: programs that run an engine's own code without its GPUs (docs/judges.md), by the Python of its environment.

Standard library alone, but for the engine and torch. A host gets the folder; relative imports work there, too.
"""
