"""The demo: one lab machine, a hub stand-in with a small real model, and the same apply as on a real host."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

from rigup.errors import RigupError
from rigup.lab import demo_model
from rigup.lab.folder import LabFolder
from rigup.lab.hub.server_process import HUB, StandInHub
from rigup.lab.lab import Lab
from rigup.units import seconds_text

NAME = "demo"
INVENTORY = "inventories/demo.py"
USED = "nvidia-smi --query-gpu=index,name,memory.used,memory.total --format=csv"
THROUGH_SUDO = "sudo env -u SUDO_UID "
"""Under sudo the lab is in root's cache, while rigup uses the caller's cache."""


def log(text: str) -> None:
    """Prints a line of the demo."""
    print(f"\n── {text}", flush=True)


def rigup(*words: str) -> None:
    """Runs rigup as a user does; ends the demo if it fails."""
    print(f"$ rigup {' '.join(words)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "rigup", *words])
    if done.returncode:
        raise SystemExit(done.returncode)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo and returns its exit code; an error is one message and one hint, as in rigup."""
    parser = argparse.ArgumentParser(prog="bin/demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="keep the lab running at the end")
    parser.add_argument("--gpus", help='simulate these GPUs: "4x RTX 3090" (default none)')
    parser.add_argument("--through-sudo", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    try:
        show(args.keep, THROUGH_SUDO if args.through_sudo else "", args.gpus)
    except RigupError as error:
        print(f"bin/demo: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, EOFError):
        print("cancelled", file=sys.stderr)
        return 130
    return 0


def show(keep: bool, prefix: str, gpus: str | None = None) -> None:
    """Runs up, plan, apply and apply again; then takes the lab down, after the user has looked around.

    prefix: precedes every command that is printed, so that a user without root can run it.
    gpus: of the machine, simulated; it then gets the fleet that the lab writes, with a driver.
    """
    log("boot a bare Debian machine, reachable only over SSH, and start a hub with a small real model")
    lab = Lab.up(NAME, hosts=1, rig=gpus, log=lambda line: print(f"   {line}", flush=True), hub=HUB)
    inventory = str(lab.folder.inventory) if gpus else INVENTORY
    try:
        StandInHub.start(demo_model.provide(), lab=NAME)
        run_it(inventory, *(["--reboot"] if gpus else []))
        if gpus:
            log(f"what the service holds of the simulated cards: {USED}")
            print(lab.machines[0].ssh(USED, check=True).stdout, end="")
        if not keep and sys.stdin.isatty():
            look_around(prefix, inventory)
            input("\nPress Enter to take the machine down. ")
    finally:
        if keep:
            look_around(prefix, inventory)
            print(f"  take it down:  {prefix}.venv/bin/rigup lab down {NAME}")
        else:
            lab.down()
            log(f"removed the machine; {'downloads' if gpus else 'builds and downloads'} are kept for the next run")


def run_it(inventory: str, *options: str) -> None:
    """The part that is the same on a real host. options: of the first apply."""
    log("plan what this machine will serve")
    rigup("plan", inventory)
    log("apply the plan")
    began = time.monotonic()
    rigup("apply", inventory, "--yes", *options)
    print(f"first apply: {seconds_text(time.monotonic() - began)}")
    log("apply again: nothing to do")
    began = time.monotonic()
    rigup("apply", inventory, "--yes")
    print(f"second apply: {seconds_text(time.monotonic() - began)}")
    rigup("status", inventory)


def look_around(prefix: str, inventory: str) -> None:
    """Prints commands to inspect the machine."""
    ssh = f"{prefix}ssh -F {LabFolder(NAME).ssh_config} {NAME}1"
    log("inspect the machine from another terminal")
    print(f"  log in:        {ssh}")
    print(f"  the unit:      {ssh} systemctl status rigup-chat")
    print(f"  its sandbox:   {ssh} systemd-analyze security rigup-chat")
    print(f"  its drift:      {prefix}.venv/bin/rigup diff {inventory}")


if __name__ == "__main__":
    sys.exit(main())
