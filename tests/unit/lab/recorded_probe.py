"""A probe of real GPUs, as `rigup init --json` prints it, held against what the lab simulates for the same cards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rigup.lab.gpus.description import describe
from rigup.preflight.rig import GPU_MEMORY_TOLERANCE

# what the probe calls a figure, the key of the description that has it, and how many of the one the other is
FIGURES = {
    ("power", "default_w"): ("power_default_mw", 1000),
    ("power", "least_w"): ("power_minimum_mw", 1000),
    ("power", "most_w"): ("power_maximum_mw", 1000),
    ("pcie", "most_generation"): ("pcie_generation_max", 1),
    ("pcie", "most_width"): ("pcie_width_max", 1),
}
EXISTENCE = {
    "ecc": "ecc",
    "mig": "mig",
    "nvlinks": "nvlinks",
    "fabric": "fabric_state",
    "temperature_c": "temperature",
    "persistence": "persistence",
}


def differences(probe: dict[str, Any]) -> list[str]:
    """In what a recorded probe's GPUs answer otherwise than simulated ones; raises InputError for unknown GPUs."""
    names = [gpu["name"] for gpu in probe["gpus"]]
    lines = describe({"gpus": names}, "recorded").splitlines()
    simulated = dict(line.partition(" ")[::2] for line in lines if not line.startswith("#"))
    return [difference for gpu in probe["gpus"] for difference in _of_one(gpu, simulated)]


def _of_one(gpu: dict[str, Any], simulated: dict[str, str]) -> Iterator[str]:
    def described(key: str) -> str | None:
        return simulated.get(f"gpu{gpu['index']}.{key}")

    def differs(what: str, real: object, lab: object) -> str:
        return f"GPU {gpu['index']} ({gpu['name']}): {what}: recorded {real}, simulated {lab}"

    if gpu["compute_capability"] != described("compute_capability"):
        yield differs("compute_capability", gpu["compute_capability"], described("compute_capability"))
    real, lab = None if gpu["memory_of_host"] else gpu["memory_total_mib"], described("memory_mib")
    if (real is None) != (lab is None) or (real and lab and abs(real - int(lab)) > GPU_MEMORY_TOLERANCE * int(lab)):
        yield differs("memory_mib", real, lab)
    for (part, name), (key, factor) in FIGURES.items():
        figure, text = gpu[part][name], described(key)
        wanted = None if text is None else int(text) / factor
        if figure != wanted:
            yield differs(f"{part}.{name}", figure, wanted)
    for name, key in EXISTENCE.items():
        there = gpu[name] not in (None, "")
        if there != (described(key) is not None):
            yield differs(name, gpu[name], described(key))
