"""`rigup lab`: disposable booted machines on this one, to rehearse every other verb on."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from rigup.cli import lab_gpu

if TYPE_CHECKING:
    from rigup.lab.lab import Lab
    from rigup.lab.machine import Machine

EPILOG = """\
examples:
  rigup lab up --hosts 2              lab1 and lab2, Debian 12; prints how to reach them
  rigup lab up --name b --suite trixie --disk 600m
  rigup apply INVENTORY               the inventory that `lab up` printed
  rigup lab cut lab1                  pull its network cable; `heal` plugs it in
  rigup lab kill lab1                 cut its power; `start` boots it again from its disk
  rigup lab up --name g --rig "4x RTX 3090"
                                      g1, with simulated GPUs and NVIDIA's packages
  rigup lab gpu lose g1 2             its third card falls off the bus
  rigup lab down                      as if it had never been

needs root on Linux; see docs/lab.md
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-verbs of `rigup lab`."""
    verbs = parser.add_subparsers(
        dest="lab_verb", metavar="up|list|down|base|cut|heal|rate|kill|start|gpu", required=True
    )

    up = verbs.add_parser("up", help="bring machines up; what is up stays as it is")
    up.add_argument("--hosts", type=int, default=1, metavar="N", help="how many machines (default 1)")
    up.add_argument(
        "--name", default="lab", help="of the lab, its group and its machines (default lab: lab1, lab2, ...)"
    )
    up.add_argument("--suite", default="bookworm", help="bookworm (Debian 12, default) or trixie (Debian 13)")
    up.add_argument(
        "--disk", default="4g", metavar="SIZE", help="of each machine; takes memory as it fills (default 4g)"
    )
    up.add_argument(
        "--rig", metavar="GPUS", help='to simulate: "4x RTX 3090", or a group_data file\'s name (default none)'
    )
    _verb(up, _up)

    _verb(verbs.add_parser("list", help="which machines are there, and how to reach them"), _list)

    gpu = verbs.add_parser("gpu", help="what happens to a simulated GPU")
    lab_gpu.add_arguments(gpu)
    _verb(gpu, lambda args: lab_gpu.run(args, _machine))

    down = verbs.add_parser("down", help="throw a lab away, its machines with all that is on them")
    down.add_argument("name", nargs="?", help="of the lab (default: the only one)")
    down.add_argument("--all", action="store_true", help="every lab")
    _verb(down, _down)

    base = verbs.add_parser("base", help="build the image that machines start from, ahead of time or anew")
    base.add_argument("--suite", default="bookworm")
    base.add_argument("--fresh", action="store_true", help="again, for its packages have moved on")
    _verb(base, _base)

    for fault, purpose in (
        ("cut", "pull a machine's network cable"),
        ("heal", "plug it in again"),
        ("rate", "limit a machine's network, both ways"),
        ("kill", "cut a machine's power; its disk stays"),
        ("start", "boot a machine that is off"),
    ):
        sub = verbs.add_parser(fault, help=purpose)
        sub.add_argument("machine", help="its host name, such as lab1")
        if fault == "rate":
            sub.add_argument("rate", help='such as "8mbit"; "off" for no limit')
        _verb(sub, _fault)


def run(args: argparse.Namespace) -> int:
    """Does one sub-verb. Data on standard output, progress on standard error."""
    return int(args.lab_run(args))


def _verb(parser: argparse.ArgumentParser, function: object) -> None:
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.set_defaults(lab_run=function)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _up(args: argparse.Namespace) -> int:
    from rigup.lab.lab import Lab

    lab = Lab.up(args.name, args.hosts, args.suite, args.disk, lab_gpu.rig_of(args.rig), say=_say)
    _show([lab], args.json)
    return 0


def _list(args: argparse.Namespace) -> int:
    from rigup.lab.lab import Lab

    _show(Lab.all(_say), args.json)
    return 0


def _down(args: argparse.Namespace) -> int:
    from rigup.errors import InputError
    from rigup.lab.folder import lab_folders
    from rigup.lab.lab import take_down

    if args.name and args.all:
        raise InputError(f"lab down: {args.name} and --all: one lab, or all of them", f"rigup lab down {args.name}")
    names = [args.name] if args.name else [folder.name for folder in lab_folders()]
    if len(names) > 1 and not args.all:
        raise InputError(f"lab down: there are several labs ({', '.join(names)})", "name one, or say --all")
    for name in names:
        take_down(name)
        _say(f"lab {name} is gone")
    if args.json:
        print(json.dumps({"schema": 1, "down": names}))
    return 0


def _base(args: argparse.Namespace) -> int:
    from rigup.lab import base, prerequisites

    prerequisites.check()
    path = base.image(base.ensure(args.suite, _say, args.fresh))
    print(json.dumps({"schema": 1, "image": str(path)}) if args.json else path)
    return 0


def _fault(args: argparse.Namespace) -> int:
    from rigup.lab import prerequisites

    prerequisites.check()
    machine = _machine(args.machine)
    match args.lab_verb:
        case "cut":
            machine.cut()
        case "heal":
            machine.heal()
        case "rate":
            machine.rate(None if args.rate == "off" else args.rate)
        case "kill":
            machine.power_off()
        case "start":
            machine.power_on()
    print(json.dumps({"schema": 1, **_describe(machine)}) if args.json else _line(machine))
    return 0


def _machine(name: str) -> Machine:
    from rigup.errors import InputError
    from rigup.lab.lab import Lab

    machines = [machine for lab in Lab.all() for machine in lab.machines]
    found = [machine for machine in machines if machine.name == name]
    if not found:
        names = ", ".join(machine.name for machine in machines) or "none is up"
        raise InputError(f"{name}: there is no such machine ({names})", "rigup lab list")
    return found[0]


def _show(labs: list[Lab], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"schema": 1, "labs": [_describe_lab(lab) for lab in labs]}, indent=1))
        return
    for lab in labs:
        print(f"lab {lab.record.name}: {lab.record.suite}, {lab.record.disk} disks")
        for machine in lab.machines:
            print(f"  {_line(machine)}")
        print(f"  log in     ssh -F {lab.folder.ssh_config} {lab.machines[0].name}")
        print(f"  inventory  {lab.folder.inventory}")


def _line(machine: Machine) -> str:
    cable = machine.cable
    notes = [] if cable.plugged else ["cable cut"]
    notes += [f"limited to {cable.rate}"] if cable.rate else []
    return "  ".join([machine.name, machine.address, machine.inner_address, "on" if machine.on else "off", *notes])


def _describe(machine: Machine) -> dict[str, Any]:
    return {
        "name": machine.name,
        "address": machine.address,
        "ssh_port": machine.record.ssh_port,
        "inner_address": machine.inner_address,
        "power": "on" if machine.on else "off",
        "cable": "plugged" if machine.cable.plugged else "cut",
        "rate": machine.cable.rate,
    }


def _describe_lab(lab: Lab) -> dict[str, Any]:
    return {
        "name": lab.record.name,
        "suite": lab.record.suite,
        "disk": lab.record.disk,
        "folder": str(lab.folder.path),
        "ssh_config": str(lab.folder.ssh_config),
        "inventory": str(lab.folder.inventory),
        "machines": [_describe(machine) for machine in lab.machines],
    }
