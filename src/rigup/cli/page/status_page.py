"""`rigup status --html`: checks options, and creates the page from an inspection."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rigup.cli.page.writing import STANDARD_OUTPUT, check_writable, write_page
from rigup.errors import InputError

if TYPE_CHECKING:
    from rigup.run.inspection import Inspection

FLAG = "--html"


def check(args: argparse.Namespace) -> None:
    """Raises InputError for invalid options before any host is contacted."""
    if args.watch is not None:
        raise InputError(f"{FLAG} and --watch: a page is of one moment", "run rigup status --html FILE from a timer")
    if args.json and args.html == STANDARD_OUTPUT:
        raise InputError(f"{FLAG} - and --json: both would go to standard output", "name a file for the page")
    check_writable(args.html, FLAG)


def page_of(
    inspected: Inspection, rows: Sequence[dict[str, Any]], limit: str | None, gateways: Sequence[dict[str, Any]] = ()
) -> str:
    """The page without secrets: those of hosts, releases and the inventory are redacted."""
    from rigup.cli.page.collect import fleet_content
    from rigup.cli.page.document import fleet_page
    from rigup.report.inventory_secrets import inventory_secrets
    from rigup.report.redaction import Redactor

    content, secrets = fleet_content(inspected, rows, limit, gateways)
    project = inspected.context.project
    secrets += [secret for entry in project.hosts for secret in inventory_secrets(project.root, entry.data)]
    secrets.append(inspected.context.connections.sudo_password or "")
    return fleet_page(Redactor(secrets).value(content))


def write(path: str, text: str) -> None:
    """Writes the page and prints its path to standard error."""
    write_page(path, text, FLAG)
    if path != STANDARD_OUTPUT:
        print(f"{path}: written", file=sys.stderr)
