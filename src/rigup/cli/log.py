"""`rigup log`: what was applied to a host: when, by whom, from which lock and commit, what changed, how it ended."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from rigup.cli import hosts

if TYPE_CHECKING:
    from rich.console import Console

EPILOG = """\
examples:
  rigup log gpu1.lan                the last ten applies, as the host remembers them, whoever made them
  rigup log gpu1.lan --last 100 --json
  rigup log gpu1.lan --here         those that this machine made, without asking the host

exit codes: 0 shown, 1 there are none, 2 could not ask
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """HOST, where its records are, and how many."""
    parser.add_argument("host", metavar="HOST", help="as the inventory names it")
    parser.add_argument("--inventory", metavar="INVENTORY", help="default: the only file in inventories/")
    parser.add_argument("--last", type=int, default=10, metavar="N", help="how many (default 10)")
    parser.add_argument("--here", action="store_true", help="this machine's own records; the host is not asked")
    parser.add_argument("--json", action="store_true", help="the records as JSON on standard output")
    hosts.add_sudo_password(parser)


def run(args: argparse.Namespace) -> int:
    """Shows them, the last one last."""
    from rigup.fleet.records import kept_here

    found = (kept_here(args.host) if args.here else _of_host(args))[-max(args.last, 1) :]
    if args.json:
        json.dump({"schema": 1, "host": args.host, "applies": found}, sys.stdout, indent=1)
        print()
        return 0 if found else 1
    from rich.console import Console

    console = Console(highlight=False)
    if not found:
        console.print(f"{args.host}: nothing was ever applied" + (" from here" if args.here else ""))
        return 1
    for record in found:
        show(record, console)
    return 0


def _of_host(args: argparse.Namespace) -> list[dict[str, Any]]:
    hosts.patch_for_many_hosts()
    from rigup.errors import InputError, Unreachable
    from rigup.fleet.contact import Contact
    from rigup.fleet.inventory import load_project
    from rigup.fleet.records import ON_HOST, parse
    from rigup.operations import remote

    project = load_project(args.inventory, args.host)
    if len(project.hosts) != 1:
        raise InputError(f"{args.host}: names {len(project.hosts)} hosts", "rigup log takes one")
    contact = Contact(project, hosts.sudo_password(args))
    try:
        (host,) = contact.state.inventory
        contact.greeting(host)
        return parse(remote.ask(host, "cat", ON_HOST).stdout)
    except remote.LOST as error:
        what = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise Unreachable(
            f"{project.hosts[0].name}: connection lost ({what})",
            "run the same command again; --here shows what this machine remembers",
        ) from None
    finally:
        contact.leave()


def show(record: dict[str, Any], console: Console) -> None:
    """One apply: a line on what it was, and one for each change and error."""
    from rich.markup import escape

    from rigup.units import seconds_text

    colour = {"unchanged": "green", "changed": "yellow"}.get(record["result"], "red")
    console.print(
        f"{escape(str(record['when']))}  [bold]{escape(record['verb'])}[/] by {escape(record['who'])}: "
        f"[{colour}]{escape(str(record['result']))}[/] in {seconds_text(record['seconds'])}",
        soft_wrap=True,
    )
    origin = (
        f"lock {record['lock']}" if record["lock"] else "no lock",
        record["commit"] and f"commit {record['commit']}",
    )
    whence = f"  rigup {record['rigup']}, {', '.join(part for part in origin if part)}"
    console.print(whence, soft_wrap=True, markup=False)
    for service, what in record["services"].items():
        console.print(f"  {escape(service)}: {escape(what)}", soft_wrap=True)
    for service, kept in record.get("memory", {}).items():
        from rigup.fleet.measured_memory import in_words

        console.print(f"  {escape(service)}: GPU memory: {in_words(kept['gpus'])}", soft_wrap=True)
    for change in record["changes"]:
        console.print(f"  [yellow]~[/] {escape(change)}", soft_wrap=True)
    for error in record["errors"]:
        console.print(f"  [red]{escape(error)}[/]", soft_wrap=True)
