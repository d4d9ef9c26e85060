"""The demo: one lab machine, a hub stand-in with a real small model, and the apply that a user runs on a real box."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

from rigup.errors import RigupError
from rigup.lab import demo_model
from rigup.lab.folder import LabFolder
from rigup.lab.hub import Hub
from rigup.lab.lab import Lab
from rigup.units import seconds_text

NAME = "demo"
INVENTORY = "inventories/demo.py"
THROUGH_SUDO = "sudo env -u SUDO_UID "
"""Under sudo the lab is root's, in root's cache: rigup would look into the caller's."""


def say(text: str) -> None:
    """A line of the demo's own, between what rigup prints."""
    print(f"\n── {text}", flush=True)


def rigup(*words: str) -> None:
    """Runs rigup as a user does; ends the demo when it fails."""
    print(f"$ rigup {' '.join(words)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "rigup", *words])
    if done.returncode:
        raise SystemExit(done.returncode)


def main(arguments: Sequence[str] | None = None) -> int:
    """The demo, and its exit code; what stops it is one message and one hint, as rigup's own are."""
    parser = argparse.ArgumentParser(prog="bin/demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the lab up at the end")
    parser.add_argument("--through-sudo", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    try:
        show(args.keep, THROUGH_SUDO if args.through_sudo else "")
    except RigupError as error:
        print(f"bin/demo: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, EOFError):
        print("cancelled", file=sys.stderr)
        return 130
    return 0


def show(keep: bool, prefix: str) -> None:
    """Up, plan, apply, apply again; then the lab is taken down, once whoever watches has looked around.

    prefix: in front of every command that is shown, so that who is not root can run it.
    """
    say("a bare Debian machine, booted, reached only over SSH; and a hub that holds a real small model")
    lab = Lab.up(NAME, hosts=1, say=lambda line: print(f"   {line}", flush=True))
    try:
        Hub.start(demo_model.provide(), lab=NAME)
        run_it()
        if not keep and sys.stdin.isatty():
            look_around(prefix)
            input("\nPress Enter to take the machine down. ")
    finally:
        if keep:
            look_around(prefix)
            print(f"  take it down:  {prefix}.venv/bin/rigup lab down {NAME}")
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


def look_around(prefix: str) -> None:
    """How to see for yourself."""
    ssh = f"{prefix}ssh -F {LabFolder(NAME).ssh_config} {NAME}1"
    say("look around, from another terminal")
    print(f"  log in:        {ssh}")
    print(f"  the unit:      {ssh} systemctl status rigup-chat")
    print(f"  its sandbox:   {ssh} systemd-analyze security rigup-chat")
    print(f"  what differs:  {prefix}.venv/bin/rigup diff {INVENTORY}")


if __name__ == "__main__":
    sys.exit(main())
