"""`rigup lab`: boots disposable machines on this one, to rehearse every other verb on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rigup.cli.lab import gpu as lab_gpu
from rigup.cli.output.lines import json_text, print_json, print_json_line, tell
from rigup.cli.output.typed_words import whole_number

if TYPE_CHECKING:
    from pathlib import Path

    from rigup.lab.lab import Lab
    from rigup.lab.machine import Machine

EPILOG = """\
examples:
  rigup lab up --hosts 2              boot lab1 and lab2 with Debian 12 and print how to reach them
  rigup lab up --name b --suite trixie --disk 600m
  rigup apply INVENTORY               apply to the inventory that `lab up` printed
  rigup lab cut lab1                  pull its network cable (`heal` plugs it in again)
  rigup lab kill lab1                 cut its power (`start` boots it again from its disk)
  rigup lab up --name g --rig "4x RTX 3090"
                                      boot g1 with simulated GPUs and NVIDIA's packages
  rigup lab gpu lose g1 2             drop its third GPU off the bus
  rigup lab down                      remove the lab and its machines

Needs root on Linux; see docs/lab.md.

exit codes: 0 success, 1 failed, 2 usage error, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `rigup lab`."""
    verbs = parser.add_subparsers(
        dest="lab_verb", metavar="up|list|down|base|cut|heal|rate|kill|start|gpu", required=True
    )

    up = verbs.add_parser("up", help="boot machines; running ones are left alone")
    up.add_argument("--hosts", type=whole_number("--hosts"), default=1, metavar="N", help="boot N machines (default 1)")
    up.add_argument(
        "--name", default="lab", help="name the lab, its group and its machines (default lab: lab1, lab2, ...)"
    )
    up.add_argument(
        "--suite",
        default="bookworm",
        help="boot bookworm (Debian 12, default), trixie (Debian 13) or noble (looks like Ubuntu 24.04)",
    )
    up.add_argument(
        "--disk",
        default="4g",
        metavar="SIZE",
        help="set each machine's disk size; a disk uses memory as it fills (default 4g)",
    )
    up.add_argument(
        "--rig", metavar="GPUS", help='simulate these GPUs: "4x RTX 3090", or a group_data file\'s name (default none)'
    )
    up.add_argument("--no-hub", dest="hub", action="store_false", help="start no model hub in the lab")
    _verb(up, _up)

    _verb(verbs.add_parser("list", help="list the machines and how to reach them"), _list)

    gpu = verbs.add_parser("gpu", help="inject a fault into a simulated GPU")
    lab_gpu.add_arguments(gpu)
    _verb(gpu, lambda args: lab_gpu.run(args, _machine))

    down = verbs.add_parser("down", help="remove a lab and everything on its machines")
    down.add_argument("name", nargs="?", help="name of the lab (default: the only one)")
    down.add_argument("--name", dest="named", metavar="NAME", help="the same as NAME, as in lab up")
    down.add_argument("--all", action="store_true", help="remove every lab")
    _verb(down, _down)

    base = verbs.add_parser("base", help="build the base image of the machines ahead of time, or again")
    base.add_argument("--suite", default="bookworm")
    base.add_argument("--fresh", action="store_true", help="build it again with current packages")
    _verb(base, _base)

    for fault, purpose in (
        ("cut", "pull a machine's network cable"),
        ("heal", "plug a machine's network cable in again"),
        ("rate", "limit a machine's network bandwidth in both directions"),
        ("kill", "cut a machine's power and keep its disk"),
        ("start", "boot a machine that is off"),
    ):
        sub = verbs.add_parser(fault, help=purpose)
        sub.add_argument("machine", help="host name, such as lab1")
        if fault == "rate":
            sub.add_argument("rate", help='bandwidth, such as "8mbit", or "off" for no limit')
        _verb(sub, _fault)


def run(args: argparse.Namespace) -> int:
    """Runs one subcommand. Data goes to standard output, progress to standard error."""
    return int(args.lab_run(args))


def _verb(parser: argparse.ArgumentParser, function: object) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(lab_run=function)


def _up(args: argparse.Namespace) -> int:
    from rigup.lab import prerequisites
    from rigup.lab.hub.server_process import HUB, StandInHub
    from rigup.lab.lab import Lab

    rig = lab_gpu.rig_of(args.rig)
    prerequisites.check()
    models = _models() if args.hub else None
    address = HUB if models else None
    lab = Lab.up(args.name, args.hosts, args.suite, args.disk, rig, log=tell, hub=address)
    if models:
        StandInHub.start(models, lab=lab.record.name)
    _show([lab], args.json)
    return 0


def _models() -> Path | None:
    """The folder that the lab's hub serves; None, with the reason on standard error, if it cannot be downloaded."""
    from rigup.errors import HostFailed, Unreachable
    from rigup.lab import demo_model

    try:
        return demo_model.provide()
    except (HostFailed, Unreachable) as error:
        tell(f"no model hub in the lab: {error.message}")
        return None


def _list(args: argparse.Namespace) -> int:
    from rigup.lab.lab import Lab

    _show(Lab.all(tell), args.json)
    return 0


def _down(args: argparse.Namespace) -> int:
    from rigup.errors import InputError
    from rigup.lab.folder import lab_folders
    from rigup.lab.lab import take_down

    name = args.name or args.named
    if name and args.all:
        raise InputError(f"lab down: {name} cannot be combined with --all", f"rigup lab down {name}")
    if args.named and args.named != name:
        raise InputError(f"lab down: {name} and --name {args.named} differ", f"rigup lab down {name}")
    names = [name] if name else [folder.name for folder in lab_folders()]
    if len(names) > 1 and not args.all:
        raise InputError(f"lab down: several labs exist ({', '.join(names)})", "name one, or pass --all")
    for name in names:
        take_down(name)
        tell(f"removed lab {name}")
    if args.json:
        print_json_line({"schema": 1, "down": names})
    return 0


def _base(args: argparse.Namespace) -> int:
    from rigup.lab import base, prerequisites

    prerequisites.check()
    path = base.image(base.ensure(args.suite, tell, args.fresh))
    print(json_text({"schema": 1, "image": str(path)}) if args.json else path)
    return 0


def _fault(args: argparse.Namespace) -> int:
    from rigup.lab import prerequisites

    prerequisites.check()
    machine = _machine(args.machine)
    if args.lab_verb == "rate":
        machine.rate(None if args.rate == "off" else args.rate)
    else:
        faults = {"cut": machine.cut, "heal": machine.heal, "kill": machine.power_off, "start": machine.power_on}
        faults[args.lab_verb]()
    print(json_text({"schema": 1, **_describe(machine)}) if args.json else _line(machine))
    return 0


def _machine(name: str) -> Machine:
    from rigup.errors import InputError
    from rigup.lab.lab import Lab

    machines = [machine for lab in Lab.all() for machine in lab.machines]
    found = [machine for machine in machines if machine.name == name]
    if not found:
        names = ", ".join(machine.name for machine in machines) or "none"
        raise InputError(f"machine {name} does not exist (machines: {names})", "rigup lab list")
    return found[0]


def _show(labs: list[Lab], as_json: bool) -> None:
    if as_json:
        print_json({"schema": 1, "labs": [_describe_lab(lab) for lab in labs]})
        return
    for lab in labs:
        print(f"lab {lab.record.name}: {lab.record.suite}, {lab.record.disk} disks")
        for machine in lab.machines:
            print(f"  {_line(machine)}")
        print(f"  log in     ssh -F {lab.folder.ssh_config} {lab.machines[0].name}")
        print(f"  inventory  {lab.folder.inventory}")
        if hub := _hub(lab):
            print(f"  model hub  {hub}")


def _line(machine: Machine) -> str:
    cable = machine.cable
    notes = [] if cable.plugged else ["cable cut"]
    notes += [f"limited to {cable.rate}"] if cable.rate else []
    return "  ".join([machine.name, machine.address, machine.inner_address, "on" if machine.on else "off", *notes])


def _hub(lab: Lab) -> str | None:
    """The address of the lab's model hub for its machines, if it runs."""
    from rigup.lab.hub.server_process import StandInHub

    hub = StandInHub(lab.folder.path)
    return hub.url if hub.running else None


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
        "hub": _hub(lab),
        "machines": [_describe(machine) for machine in lab.machines],
    }
