"""`rigup log`: lists the applies of a host: when, by whom, lock and commit, changes, outcome."""

from __future__ import annotations

import argparse
from typing import Any

from rigup import layout
from rigup.cli.output.lines import Lines, lines, print_json
from rigup.cli.output.typed_words import add_number
from rigup.cli.sessions import session as hosts
from rigup.connection.connections import Connections
from rigup.errors import HostUnreachable
from rigup.facts.apply_records import parse
from rigup.operations.primitives import remote
from rigup.run.audit_log import kept_here
from rigup.run.chains.timing import StepTime, line
from rigup.run.measured_memory import in_words
from rigup.units import seconds_text

EPILOG = """\
examples:
  rigup log gpu1.lan                show the last ten applies that the host recorded
  rigup log gpu1.lan --last 100 --json
  rigup log gpu1.lan --here         show the applies that this machine recorded, without contacting the host

exit codes: 0 shown, 1 nothing recorded, 2 usage error or host not reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds HOST and the options."""
    parser.add_argument("host", metavar="HOST", help="host name in the inventory")
    parser.add_argument(
        "--inventory", metavar="INVENTORY", help="inventory file (default: the only file in inventories/)"
    )
    add_number(parser, "--last", "show the last N applies (default 10)", 10, 1, 100_000)
    parser.add_argument("--here", action="store_true", help="read this machine's records; do not contact the host")
    parser.add_argument("--json", action="store_true", help="print the records as JSON")
    hosts.add_sudo_password(parser)


def run(args: argparse.Namespace) -> int:
    """Shows the records, oldest first."""
    found = (kept_here(args.host) if args.here else _of_host(args))[-args.last :]
    if args.json:
        print_json({"schema": 1, "host": args.host, "applies": found})
        return 0 if found else 1
    out = lines()
    if not found:
        out.say(f"{args.host}: no apply recorded" + (" on this machine" if args.here else ""))
        return 1
    for record in found:
        show(record, out)
    return 0


def _of_host(args: argparse.Namespace) -> list[dict[str, Any]]:
    project = hosts.project_of_one(args.inventory, args.host)
    contact = Connections(project.data_by_host, hosts.sudo_password(args))
    try:
        (host,) = contact.state.inventory
        contact.handshake(host)
        return parse(remote.run(host, "cat", layout.APPLY_RECORDS).stdout)
    except remote.CONNECTION_ERRORS as error:
        what = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise HostUnreachable(
            f"{project.hosts[0].name}: connection lost ({what})",
            "run the command again, or add --here to read this machine's records",
        ) from None
    finally:
        contact.leave()


def show(record: dict[str, Any], out: Lines) -> None:
    """Prints one apply: a heading, then a line for each change and error."""
    colour = {"unchanged": "green", "changed": "yellow"}.get(record["result"], "red")
    head = (f"{record['when']}  ", (record["verb"], "bold"), f" by {record['who']}: ")
    out.say(*head, (str(record["result"]), colour), f" in {seconds_text(record['seconds'])}")
    lock = f"lock {record['lock']}" if record["lock"] else "no lock"
    commit = f", commit {record['commit']}" if record["commit"] else ""
    out.say(f"  rigup {record['rigup']}, {lock}{commit}")
    for service, what in record["services"].items():
        out.say(f"  {service}: {what}")
    for service, kept in record.get("memory", {}).items():
        out.say(f"  {service}: GPU memory: {in_words(kept['gpus'])}")
    if times := [StepTime.of_record(each) for each in record.get("steps", ())]:
        out.say(f"  {line(times)}")
    for change in record["changes"]:
        out.say("  ", ("~", "yellow"), f" {change}")
    for error in record["errors"]:
        out.say("  ", (error, "red"))
