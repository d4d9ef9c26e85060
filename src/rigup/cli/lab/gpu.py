"""`rigup lab gpu`: faults of the simulated GPUs of a lab machine; and the rig that `lab up --rig` names."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.cli.output.lines import json_text
from rigup.cli.output.typed_words import whole_number
from rigup.errors import InputError

if TYPE_CHECKING:
    from rigup.lab.machine import Machine

ACTIONS = {
    "lose": "fell off the bus",
    "restore": "is restored",
    "throttle": "is hot and throttled",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `rigup lab gpu`."""
    parser.add_argument("action", choices=ACTIONS, metavar="lose|restore|throttle", help="fault to inject, or restore")
    parser.add_argument("machine", help="host name, such as lab1")
    parser.add_argument("index", type=whole_number("index", 0, 63), help="index of the GPU, from 0")


def run(args: argparse.Namespace, machine: Callable[[str], Machine]) -> int:
    """Injects the fault, which lasts until `restore` or the next boot. machine: finds a machine by name."""
    from rigup.lab.gpus.simulated import SimulatedGpus

    gpus = SimulatedGpus(machine(args.machine))
    {"lose": gpus.lose, "restore": gpus.restore, "throttle": gpus.throttle}[args.action](args.index)
    state = {"machine": args.machine, "gpu": args.index, "action": args.action}
    line = f"{args.machine}: GPU {args.index} {ACTIONS[args.action]}"
    print(json_text({"schema": 1, **state}) if args.json else line)
    return 0


def rig_of(text: str | None) -> str | dict[str, Any] | None:
    """Reads --rig: the name of a group_data file of this fleet or of rigup, or a list of GPUs.

    Raises InputError if the file has no rig.
    """
    from rigup.project.group_data import GROUP_DATA, execute
    from rigup.project.inventory import toolkit_root

    if text is None or not re.fullmatch(r"[A-Za-z_]\w*", text):
        return text
    for folder in (Path.cwd(), toolkit_root()):
        path = folder / GROUP_DATA / f"{text}.py"
        if path.exists():
            rig = execute(path).get("rig")
            if not isinstance(rig, dict):
                raise InputError(f"{path}: rig is missing", 'name a file with rig = {"gpus": "4x RTX 3090"}')
            return rig
    return text
