"""The demo: one lab machine, a hub stand-in with a real small model, and the apply that a user runs on a real box."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

from rigup.lab import demo_model
from rigup.lab.hub import Hub
from rigup.lab.lab import Lab
from rigup.units import seconds_text

NAME = "demo"
INVENTORY = "inventories/demo.py"


def say(text: str) -> None:
    """A line of the demo's own, between what rigup prints."""
    print(f"\n── {text}", flush=True)


def rigup(*words: str) -> None:
    """Runs rigup as a user does; ends the demo when it fails."""
    print(f"$ rigup {' '.join(words)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "rigup", *words])
    if done.returncode:
        raise SystemExit(done.returncode)


def main(arguments: Sequence[str] | None = None) -> None:
    """Up, plan, apply, apply again; then the lab is taken down, once whoever watches has looked around."""
    parser = argparse.ArgumentParser(prog="bin/demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the lab up at the end")
    args = parser.parse_args(arguments)
    say("a bare Debian machine, booted, reached only over SSH; and a hub that holds a real small model")
    lab = Lab.up(NAME, hosts=1, say=lambda line: print(f"   {line}", flush=True))
    try:
        Hub.start(demo_model.provide(), lab=NAME)
        run_it()
        if not args.keep and sys.stdin.isatty():
            look_around()
            input("\nPress Enter to take the machine down. ")
    finally:
        if args.keep:
            look_around()
            print(f"  take it down: .venv/bin/rigup lab down {NAME}")
        else:
            lab.down()
            say("the machine is gone; what was built and downloaded is kept for the next time")


def run_it() -> None:
    """The part that is the same on a real box."""
    say("what will this machine serve?")
    rigup("plan", INVENTORY)
    say("make it so")
    began = time.monotonic()
    rigup("apply", INVENTORY, "--yes")
    print(f"first apply: {seconds_text(time.monotonic() - began)}")
    say("and again: nothing to do")
    began = time.monotonic()
    rigup("apply", INVENTORY, "--yes")
    print(f"second apply: {seconds_text(time.monotonic() - began)}")
    rigup("status", INVENTORY)


def look_around() -> None:
    """How to see for yourself."""
    config = Lab.named(NAME).folder.ssh_config
    say("look around, from another terminal")
    print(f"  log in:        ssh -F {config} {NAME}1")
    print(f"  the unit:      ssh -F {config} {NAME}1 systemctl status rigup-chat")
    print(f"  its sandbox:   ssh -F {config} {NAME}1 systemd-analyze security rigup-chat")
    print(f"  what differs:  .venv/bin/rigup diff {INVENTORY}")


if __name__ == "__main__":
    main()
