"""The `rigup` command: parses the arguments, runs one verb, reports errors as message, hint and exit code."""

from __future__ import annotations

import argparse
import atexit
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from rigup import __version__
from rigup.cli.output.lines import show_error, tell
from rigup.cli.output.printable_streams import printable_streams
from rigup.cli.output.streams import open_missing_streams, steady
from rigup.cli.output.typed_words import check_words
from rigup.cli.output.usage import Parser
from rigup.cli.sessions.session import pop_sudo_password
from rigup.connection import startup
from rigup.errors import InputError, RigupError

VERBS = {
    "up": "describe a host, lock, plan and apply in one command, until its service answers",
    "init": "probe a host and write its inventory entry and group_data file",
    "plan": "show offline what each rig will serve: memory per GPU, command line, refusals and alternatives",
    "fit": "list every model that a rig can serve, at its best; or the rigs that can serve one model",
    "model": "read a checkpoint's own files and write its model and checkpoint into the fleet's catalogue",
    "lock": "resolve and pin what the plans need: checkpoints, Python packages, archives, images, driver",
    "diff": "show what apply would change and any other drift from the plan (over SSH, read-only)",
    "apply": "apply the plan: install, start, and verify each service with a real request",
    "prune": "remove builds, caches and weights that no retained release uses",
    "status": "show one line per service: build, checkpoint, health (checked with a real request), drift",
    "verify": "check the links between GPUs: PCIe, NVLink, P2P with real copies; power, ECC, Xid errors (read-only)",
    "releases": "list the releases that each host retains and what changed between them",
    "rollback": "roll services back to the previous release and check that they answer",
    "log": "list the applies of a host: when, by whom, from which lock, what changed, how each ended",
    "report": "write one redacted file about a host, to attach to a bug report",
    "bench": "measure tokens/s, TTFT, TPOT and ITL of running services; store and compare the results",
    "eval": "score running services with lm-evaluation-harness; store and compare the results",
    "metrics": "write a Prometheus configuration and a Grafana dashboard for the fleet",
    "tune": "run the engine's fused-MoE tuner on one host and keep the result if it is faster",
    "schema": "print the JSON schema of what a verb prints with --json",
    "completion": "print a completion script for bash, zsh or fish, or the man page",
    "chat": "talk to a service through a tunnel, with its tokens/s; or send one prompt",
    "tunnel": "forward the endpoints of services to this machine's loopback address until Ctrl-C",
    "stop": "stop services once their requests in flight have ended; they stay stopped until the next apply",
    "start": "start services that were stopped, and wait until they answer",
    "restart": "restart services once their requests in flight have ended, and wait until they answer",
    "key": "show the API keys of services, or replace one",
    "logs": "print the journals of services on all hosts, merged by time; -f follows new entries",
    "compare": "show what differs between two hosts: hardware, driver, builds, releases, settings",
    "uninstall": "remove everything that rigup put on a host; weights on request, never the driver",
    "exec": "run a command on hosts and print its output line by line",
    "lab": "boot disposable machines to rehearse on",
}

# verbs whose module lies in a package of cli
MODULES = {verb: f"service.{verb}" for verb in ("chat", "tunnel", "restart", "key", "logs", "exec")}
MODULES |= dict.fromkeys(("stop", "start"), "service.power")
# verbs that connect to no host, or to some only if their options say so, for which they prepare themselves
OFFLINE = ("plan", "fit", "model", "lock", "bench", "eval", "metrics", "schema", "completion", "lab")
ONLY_TELL = ("plan", "fit", "diff", "status", "verify", "releases", "log", "logs", "chat", "compare")

EPILOG = """\
examples:
  rigup up ada@gpu1.lan MiniMax-M2.5          describe, lock, plan, apply: from a host to an answer in one command
  rigup init ada@gpu1.lan                     describe a host as rigup finds it
  rigup plan inventories/homelab.py           show what each rig would serve, and why not
  rigup model add Qwen/Qwen3-8B                add a model of the hub to the fleet's catalogue
  rigup lock inventories/homelab.py           pin revisions, files and hashes in rigup.lock
  rigup apply inventories/homelab.py          show the changes, confirm, make them, send a test request
  rigup apply --limit gpu1.lan --yes          change one host of the only inventory, without confirmation
  rigup status --json                         print the status as JSON, for scripts
  rigup lab up --hosts 2                      boot two machines to rehearse on

exit codes: 0 success, 1 refused, different or failed, 2 usage error or no host reachable, 130 cancelled
"""


def build_parser(wanted: str | None = None, alone: bool = False) -> Parser:
    """Builds the argument parser, with the name and the purpose of every verb.

    wanted: the only verb whose module is imported, for its arguments; "" for none, None for all. alone: leaves out the
    other verbs, which nothing names where the wanted one comes first.
    """
    parser = Parser(
        prog="rigup",
        description="Plans what a multi-GPU host can serve, pins every input, and sets the host up over SSH.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"rigup {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, purpose in VERBS.items():
        if wanted not in (None, verb):
            if not alone:
                verbs.add_parser(verb, help=purpose)
            continue
        module = importlib.import_module(f"rigup.cli.{MODULES.get(verb, verb)}")
        description = purpose[0].upper() + purpose[1:] + "."
        sub = verbs.add_parser(verb, help=purpose, description=description, epilog=module.EPILOG)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    arguments: None for the process's own arguments; main then ends the process itself.
    """
    words = sys.argv[1:] if arguments is None else arguments
    verb = next((word for word in words if word in VERBS), "")
    open_missing_streams()
    if arguments is None and verb and verb not in OFFLINE:
        startup.patch_for_many_hosts()
    with printable_streams():
        args = _parsed(words, verb)
    if isinstance(args, int):
        code = args
    else:
        with steady(args.verb in ONLY_TELL), printable_streams():
            code = _run(args)
    return code if arguments is not None else _leave(code)


def _parsed(words: Sequence[str], verb: str) -> argparse.Namespace | int:
    """The arguments, or the exit code if one of them was refused."""
    try:
        check_words(words)
        if not words:
            build_parser("").print_help()
            return 0
        args = build_parser(verb, alone=words[0] == verb).parse_args(words)
    except InputError as error:
        show_error(error, as_json="--json" in words)
        return error.exit_code
    except KeyboardInterrupt:  # while the verb's module is imported
        tell("cancelled")
        return 130
    args.sudo_password = pop_sudo_password()
    return args


def _run(args: argparse.Namespace) -> int:
    try:
        return int(args.run(args))
    except RigupError as error:
        show_error(error, bool(getattr(args, "json", False)))
        return error.exit_code
    except KeyboardInterrupt:
        tell("cancelled")
        return 130
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:
        return _report_os_error(error, bool(getattr(args, "json", False)))


def _report_os_error(error: OSError, as_json: bool) -> int:
    """Reports a local file, folder or device that cannot be used and that no verb reported itself."""
    with suppress(OSError):  # the rest of the buffer would fail again
        sys.stdout.flush()
    where = f"{error.filename}: " if error.filename else ""
    found = InputError(
        f"{where}{error.strerror or error}",
        "check the permissions of the file and its parent directories" if isinstance(error, PermissionError) else None,
    )
    if error.errno == errno.ENOSPC:
        show_error(found, as_json=False)  # standard output may be on the full disk
        return 1
    show_error(found, as_json)
    return found.exit_code


def _leave(code: int) -> NoReturn:
    """Ends the process without Python's teardown, which took a tenth of a second."""
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = _reader_gone()
    except OSError as error:
        code = code or 1
        os.write(2, f"rigup: cannot write to standard output: {error.strerror}\n".encode())
    os._exit(code)


def _reader_gone() -> int:
    """Handles a closed pipe: the reader has gone, and Python's flush at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


if __name__ == "__main__":
    sys.exit(main())
