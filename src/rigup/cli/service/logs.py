"""`rigup logs`: prints the journal of services over hosts, merged by time."""

from __future__ import annotations

import argparse
import re
import time

from rich.text import Text

from rigup.cli.output import results as summary
from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json_line
from rigup.cli.output.typed_words import add_number
from rigup.cli.service.host_labels import host_labels
from rigup.cli.sessions import unplanned
from rigup.connection.signals import ended_by_signals
from rigup.errors import InputError
from rigup.printable import printable
from rigup.run.hosts_run import HostsRun
from rigup.run.result import exit_code
from rigup.run.services.journal import Entry, Journal, JournalQuery

EPILOG = """\
examples:
  rigup logs                             print the last 100 entries of each host, of all its services
  rigup logs chat -f                     follow one service on every host that has it, until Ctrl-C
  rigup logs chat --since 2h --limit gpu1.lan
  rigup logs gateway --lines 1000        print the gateway's own journal
  rigup logs --since "2026-11-23 10:00" --json     print one JSON document per line, times in UTC

exit codes: 0 printed (-f: ended by Ctrl-C), 1 a host failed, 2 usage error or no host reachable, 130 cancelled
"""
DEFAULT_LINES = 100
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TIMES = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds SERVICE, what to print, and the arguments of every verb that needs no plan."""
    parser.add_argument("service", nargs="*", metavar="SERVICE", help="select these services (default: all)")
    parser.add_argument("-f", "--follow", action="store_true", help="print new entries as they come, until Ctrl-C")
    parser.add_argument(
        "--since", metavar="WHEN", help='print entries since then: 30s, 10m, 2h, 3d, or "2026-11-23 10:00" local time'
    )
    lines = f"print the last N entries of each host (default {DEFAULT_LINES}; with --since: all)"
    add_number(parser, "--lines", lines, None, 0, 1_000_000)
    unplanned.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the entries; changes nothing."""
    since = since_text(args.since) if args.since is not None else None
    lines = DEFAULT_LINES if args.lines is None and since is None else args.lines
    query = JournalQuery(tuple(args.service), lines, since, args.follow)
    project = unplanned.project_with(args, args.service, gateways=True)
    with unplanned.open_unplanned(args, project, HostsRun) as run:
        run.connect(take_lease=False)
        printer = Printer(list(run.results), Console(highlight=False), args.json)
        with Journal(run.context, query) as journal:
            if args.follow:
                with ended_by_signals() as ended:
                    for entry in journal.followed(ended):
                        printer.show(entry)
            else:
                for entry in journal.merged():
                    printer.show(entry)
    results = unplanned.results_of(run)
    summary.show_failed(results)
    return exit_code(results)


def since_text(text: str) -> str:
    """What journalctl takes for --since. Raises InputError.

    A time of day is the controlling machine's and goes to hosts as seconds since 1970; a duration ends at the host's
    own clock.
    """
    if found := re.fullmatch(r"([0-9]{1,6})([smhd])", text):
        return f"-{int(found[1]) * _SECONDS[found[2]]}s"
    for form in _TIMES:
        try:
            return f"@{int(time.mktime(time.strptime(text, form)))}"
        except (ValueError, OverflowError):
            continue
    raise InputError(f'--since: "{text}" is not a time', 'write 30s, 10m, 2h, 3d or "2026-11-23 10:00"')


class Printer:
    """Prints entries, each host in a colour of its own where the console has colours."""

    def __init__(self, hosts: list[str], console: Console, as_json: bool) -> None:
        self._console, self._as_json = console, as_json
        self._labels = host_labels(hosts)

    def show(self, entry: Entry) -> None:
        """Prints one entry: a line for each line of its message."""
        if self._as_json:
            print_json_line(entry.as_json())
            return
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time_us // 10**6))
        # progress bars overwrite their line with carriage returns
        for part in printable(entry.message.replace("\r", "\n")).splitlines() or [""]:
            line = Text(f"{when} ", end="")
            line.append_text(self._labels[entry.host])
            line.append(f" {entry.service} ", "dim")
            line.append(part)
            self._console.print(line, soft_wrap=True)
