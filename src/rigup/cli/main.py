"""`rigup`: reads the command line, runs one verb, and turns an error into one message, one hint and an exit code."""

from __future__ import annotations

import argparse
import atexit
import errno
import importlib
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from rigup import __version__
from rigup.cli.hosts import taken_sudo_password
from rigup.errors import InputError, RigupError

VERBS = {
    "init": "probe a box, write its inventory entry and its group_data file",
    "plan": "offline: what each rig will serve, memory per GPU, argv, refusals and what fits instead",
    "lock": "resolve and pin what the plans rest on: checkpoints, Python packages, archives, images, driver",
    "diff": "over SSH, read-only: what apply would change, and what else is not as planned",
    "apply": "make it so: from a bare machine to a service that has answered",
    "prune": "take away builds, caches and weights that no kept release needs",
    "status": "one line a service: build, checkpoint, health by a real generation, drift",
    "releases": "which releases each host keeps, and what changed from one to the next",
    "rollback": "the release before, back and answering in the time that the engine takes to start",
    "log": "what was applied to a host: when, by whom, from which lock, what changed, how it ended",
    "report": "one redacted file about a host, to attach to a bug report",
    "bench": "tokens/s, TTFT, TPOT and ITL of a running service; kept, and compared",
    "eval": "how well running services answer known questions, by lm-evaluation-harness; kept, and compared",
    "metrics": "Prometheus' configuration and Grafana's dashboard for the fleet, written here",
    "tune": "the engine's own fused-MoE tuner on one host of a group, the kernel brought home if it wins",
    "lab": "booted disposable machines to rehearse on",
}

EPILOG = """\
examples:
  rigup init ada@gpu1.lan                     describe a box as it is found
  rigup plan inventories/homelab.py           what would each rig serve, and why not
  rigup lock inventories/homelab.py           pin revisions, files and hashes in rigup.lock
  rigup apply inventories/homelab.py          show the changes, ask, make them, ask the model a question
  rigup apply --limit gpu1.lan --yes          one host of the only inventory, without asking
  rigup status --json                         for scripts
  rigup lab up --hosts 2                      two booted machines to rehearse on

exit codes: 0 yes (feasible, in sync, healthy, done), 1 no (refused, differs, failed), 2 could not even ask,
130 cancelled
"""


def build_parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """The whole command line. A verb's module is imported for its arguments only; what it needs to run comes later.

    wanted: the only verb whose arguments matter; None for all.
    """
    parser = argparse.ArgumentParser(
        prog="rigup",
        description="Fits out multi-GPU boxes: says what a rig can serve, then takes it there over SSH, on exact pins.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rigup {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, purpose in VERBS.items():
        module = importlib.import_module(f"rigup.cli.{verb}") if wanted in (None, verb) else None
        sub = verbs.add_parser(
            verb,
            help=purpose,
            description=purpose[0].upper() + purpose[1:] + ".",
            epilog=getattr(module, "EPILOG", None),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if module:
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    arguments: None for the process's own; the process ends with that command then.
    """
    words = sys.argv[1:] if arguments is None else arguments
    args = build_parser(next((word for word in words if word in VERBS), None)).parse_args(words)
    args.sudo_password = taken_sudo_password()
    code = _run(args)
    return code if arguments is not None else _leave(code)


def _run(args: argparse.Namespace) -> int:
    try:
        return int(args.run(args))
    except RigupError as error:
        show_error(error, bool(getattr(args, "json", False)))
        return error.exit_code
    except KeyboardInterrupt:
        print("cancelled", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return _nobody_reads()
    except OSError as error:
        return _refused_by_this_machine(error, bool(getattr(args, "json", False)))


def _refused_by_this_machine(error: OSError, as_json: bool) -> int:
    """A file, a folder or a device of this machine that cannot be used, where nothing nearer to it had better words."""
    with suppress(OSError):  # what is left in the buffer would fail once more
        sys.stdout.flush()
    where = f"{error.filename}: " if error.filename else ""
    found = InputError(
        f"{where}{error.strerror or error}",
        "who owns it, and the folders that it lies in?" if isinstance(error, PermissionError) else None,
    )
    if error.errno == errno.ENOSPC:
        show_error(found, as_json=False)  # standard output may be what is full
        return 1
    show_error(found, as_json)
    return found.exit_code


def _leave(code: int) -> NoReturn:
    """Ends the process. What it holds is not taken down piece by piece: that took a tenth of a second."""
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = _nobody_reads()
    except OSError as error:
        code = code or 1
        os.write(2, f"rigup: what was to be printed could not be: {error.strerror}\n".encode())
    os._exit(code)


def _nobody_reads() -> int:
    """Whoever read our output has left; Python would complain once more when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def show_error(error: RigupError, as_json: bool) -> None:
    """One message and one hint on standard error; as JSON on standard output as well, for who reads that."""
    if as_json:
        print(json.dumps({"schema": 1, "error": {"message": error.message, "hint": error.hint}}))
    print(f"rigup: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
