"""The command lines of every model of the catalogue on rigs of many kinds, for the engines' own parsers."""

from __future__ import annotations

from rigup.service import EngineName
from tests.unit.planner.asking import catalogue, decided

PROGRAMS: dict[EngineName, tuple[str, ...]] = {
    "vllm": ("bin/vllm", "serve"),
    "sglang": ("bin/python", "-m", "sglang.launch_server"),
}
RIGS = {
    "1x RTX 3090": 64,
    "4x RTX 3090": 256,
    "2x RTX 5090": 128,
    "4x RTX PRO 6000 Blackwell Server Edition": 512,
    "8x H100 80GB HBM3": 1024,
    "8x H200": 1024,
    "8x B200": 2048,
    "1x GB10": 119,
}
"""GPUs and the host's memory in GiB."""


def catalogue_commands(engine: EngineName) -> dict[tuple[str, ...], str]:
    """The distinct argument lists of an engine's default release with their models and rigs.

    Tools and reasoning are asked for where the model has parsers.
    """
    found: dict[tuple[str, ...], str] = {}
    for model in catalogue().served:
        named = model.parsers.get(engine)
        asked = {"tools": bool(named and named.tool), "reasoning": bool(named and named.reasoning)}
        for gpus, memory in RIGS.items():
            plan = decided(gpus, {"model": model.name, "engine": engine, **asked}, memory)
            if plan.command:
                found.setdefault(plan.command[len(PROGRAMS[engine]) :], f"{model.name} on {gpus}")
    return found
