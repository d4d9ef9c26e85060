"""How each engine is asked about a plan on a host.

Each module has SEES_CARDS, whether its judge asks the driver, `prepare`, which returns the judge's command, and `read`,
which returns what it answered.
"""

from __future__ import annotations

from types import ModuleType

from rigup.plan import Build


def judge_of(build: Build) -> ModuleType | None:
    """The module of an engine's judge; None where a build has none."""
    if build.variant != "cuda":
        return None
    if build.method == "wheel":
        from rigup.operations.judges import environment

        return environment
    if build.method == "source":
        from rigup.operations.judges import llama_cpp

        return llama_cpp
    return None
