"""`rigup exec`: runs a command on hosts and prints what it says, line by line."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rich.text import Text

from rigup.cli.output import results as summary
from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json
from rigup.cli.service.host_labels import host_labels
from rigup.cli.sessions import unplanned
from rigup.connection.signals import ended_by_signals
from rigup.errors import InputError
from rigup.printable import printable
from rigup.project.inventory import load_project
from rigup.run.hosts_run import HostsRun
from rigup.run.result import exit_code
from rigup.run.services.commands import Commands

EPILOG = """\
examples:
  rigup exec nvidia-smi                          on every host, as the user that SSH logs in as
  rigup exec --limit gpu1.lan -- df -h
  rigup exec --root 'dmesg | grep Xid'           a single word is a line for the shell
  rigup exec --json -- nvidia-smi -L

Put rigup's options before the command. rigup takes no lease. It records the command without secrets, but neither its
output nor what it changes.

exit codes: 0 every command exited with 0, 1 one did not, 2 usage error or no host reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds COMMAND, --root and the arguments of every verb that needs no plan."""
    parser.add_argument("--root", action="store_true", help="run the command as root")
    unplanned.add_arguments(parser)
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="run this command; put -- before it if it has options",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the command on all hosts at once."""
    words = tuple(args.command[1:] if args.command[:1] == ["--"] else args.command)
    if not words:
        raise InputError("exec: COMMAND: missing", "write it after the options: rigup exec -- uptime")
    project = load_project(args.inventory, args.limit)
    with unplanned.open_unplanned(args, project, HostsRun) as run, ended_by_signals() as ended:
        run.record("exec")
        run.connect(take_lease=False)
        show = (lambda host, line, complaint: None) if args.json else _printer(list(run.results))
        commands = Commands(run.context, words, args.root, show)
        commands.run(ended)
        results = unplanned.results_of(run)
    if args.json:
        print_json({"schema": 1, "hosts": [commands.as_json(result) for result in results]})
    else:
        summary.show_failed(results)
    return 130 if ended.is_set() else exit_code(results)


def _printer(hosts: list[str]) -> Callable[[str, str, bool], None]:
    """Prints lines as they come: with the host in front where there are several, and errors on standard error."""
    consoles = Console(highlight=False), Console(stderr=True, highlight=False)
    labels = host_labels(hosts)

    def show(host: str, line: str, complaint: bool) -> None:
        text = Text(end="")
        if len(hosts) > 1:
            text.append_text(labels[host]).append(" ")
        text.append(printable(line.replace("\r", "")))
        consoles[complaint].print(text, soft_wrap=True)

    return show
