"""`rigup lab gpu`: what can happen to the simulated GPUs of a lab machine; and which rig `lab up --rig` means."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.errors import InputError

if TYPE_CHECKING:
    from rigup.lab.machine import Machine

ACTIONS = {
    "lose": "fell off the bus",
    "restore": "is as it was",
    "throttle": "is hot and slows itself down",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `rigup lab gpu`."""
    parser.add_argument("action", choices=ACTIONS, metavar="lose|restore|throttle", help="what happens to the card")
    parser.add_argument("machine", help="its host name, such as lab1")
    parser.add_argument("index", type=int, help="of the GPU, from 0")


def run(args: argparse.Namespace, machine: Callable[[str], Machine]) -> int:
    """Does it; it lasts until `restore` or the next boot. `machine` finds a machine by name."""
    from rigup.lab.gpus import SimulatedGpus

    gpus = SimulatedGpus(machine(args.machine))
    match args.action:
        case "lose":
            gpus.lose(args.index)
        case "restore":
            gpus.restore(args.index)
        case "throttle":
            gpus.throttle(args.index)
    state = {"machine": args.machine, "gpu": args.index, "action": args.action}
    line = f"{args.machine}: GPU {args.index} {ACTIONS[args.action]}"
    print(json.dumps({"schema": 1, **state}) if args.json else line)
    return 0


def rig_of(text: str | None) -> str | dict[str, Any] | None:
    """What --rig means: the rig of a group_data file of this fleet or of the toolkit, by its name, or GPUs as they are.

    Raises InputError where such a file has no rig.
    """
    from rigup.fleet.inventory import GROUP_DATA, read_group_data, toolkit_root

    if text is None or not re.fullmatch(r"[A-Za-z_]\w*", text):
        return text
    for folder in (Path.cwd(), toolkit_root()):
        path = folder / GROUP_DATA / f"{text}.py"
        if path.exists():
            rig = read_group_data(path).get("rig")
            if not isinstance(rig, dict):
                raise InputError(f"{path}: has no rig", 'name a file that says rig = {"gpus": "4x RTX 3090"}')
            return rig
    return text
