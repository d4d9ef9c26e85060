"""`rigup report`: writes one redacted file about a host, for a bug report."""

from __future__ import annotations

import argparse
import platform
import time
from importlib.metadata import version
from typing import Any

from rigup import __version__
from rigup.cli.output.lines import print_json_line, tell
from rigup.cli.output.plan_json import plan_as_json
from rigup.cli.page.origin import origin_of
from rigup.cli.page.report_page import report_page
from rigup.cli.page.writing import STANDARD_OUTPUT, check_writable, write_page
from rigup.cli.sessions import session as hosts
from rigup.errors import InputError, RigupError
from rigup.plan import Plan
from rigup.project.inventory import HostEntry, Project
from rigup.project.node_groups import with_whole_groups
from rigup.project.planning import plan_project
from rigup.report.inventory_secrets import inventory_secrets
from rigup.report.redaction import Redactor
from rigup.report.text import report_text
from rigup.run.audit_log import kept_here
from rigup.run.inspection import Inspection
from rigup.toolkit import toolkit_root
from rigup.units import time_text

EPILOG = """\
examples:
  rigup report gpu1.lan                        write rigup-report-gpu1.lan-<time>.txt
  rigup report gpu1.lan --output -             print to standard output
  rigup report gpu1.lan --html                 write rigup-report-gpu1.lan-<time>.html, a single page

A report contains versions, the host's inventory entry, its plans, probe, drift and last record, and the last journal
lines of its services. rigup removes secrets but keeps host names.

exit codes: 0 written, 1 written but incomplete (plan refused or host not reachable), 2 usage error, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds HOST, INVENTORY and the options."""
    parser.add_argument("host", metavar="HOST", help="host name in the inventory")
    hosts.add_inventory(parser)
    parser.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="write to FILE (default rigup-report-HOST-TIME.txt; - for standard output)",
    )
    parser.add_argument("--html", action="store_true", help="write a self-contained HTML page instead of text")
    parser.add_argument("--json", action="store_true", help="print the name of the file as JSON")
    hosts.add_sudo_password(parser)


def run(args: argparse.Namespace) -> int:
    """Gathers, redacts and writes the report. Checks that the file is writable before contacting the host."""
    project = hosts.project_of_one(args.inventory, args.host)
    (entry,) = project.hosts
    path = args.output or _default_path(entry.name, "html" if args.html else "txt")
    check_writable(path, "--output")
    # include all hosts of its multi-host services
    args.limit = ",".join(host.name for host in with_whole_groups(project).hosts)
    plans = plan_project(project)
    sections, secrets, whole = _gathered(args, project, entry, plans)
    text = _text(args, project, entry, sections, secrets)
    write_page(path, text, "--output", mode=0o600)
    if path != STANDARD_OUTPUT and args.json:
        print_json_line({"schema": 1, "file": path})
    elif path != STANDARD_OUTPUT:
        print(f"wrote {path}; review it before you share it")
        tell("secrets were removed; host names and addresses were not")
    return 0 if whole else 1


def _default_path(host: str, kind: str) -> str:
    name = host.rpartition("@")[2].replace("/", "_")
    return f"rigup-report-{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.{kind}"


def _gathered(
    args: argparse.Namespace, project: Project, entry: HostEntry, plans: tuple[Plan, ...]
) -> tuple[dict[str, Any], list[str], bool]:
    """The sections, the host's secrets, and whether the report is complete."""
    sections: dict[str, Any] = {
        "versions": _versions(project),
        "inventory": {key: entry.data[key] for key in ("rig", "services") if key in entry.data},
        "plans": [plan_as_json(plan) for plan in plans],
        "last record here": _last_record(entry.name),
    }
    try:
        with hosts.open_inspection(args, _examine) as inspected:
            result, asked = inspected.results[entry.name], inspected.reports.get(entry.name)
            sections |= {
                "errors": [error.as_json() for error in result.errors],
                "differs": {
                    "state": result.state,
                    "changes": [f"{change.role}: {change.step}" for change in result.changes],
                    "drift": [drift.as_json() for drift in inspected.drift[entry.name]],
                },
                "probe": result.probe.as_json() if result.probe else None,
                "last record there": asked.record if asked else "",
                "journals": asked.journal if asked else "",
            }
            secrets = [*(asked.secrets if asked else ()), inspected.context.connections.sudo_password or ""]
            return sections, secrets, asked is not None and not result.errors
    except RigupError as error:
        return sections | {"errors": [error.as_json()]}, [], False


def _last_record(host: str) -> list[dict[str, Any]] | str:
    """This machine's last record, or the reason why it cannot be read."""
    try:
        return kept_here(host)[-1:]
    except InputError as error:
        return error.message


def _examine(inspected: Inspection) -> None:
    inspected.compare_all()
    inspected.ask_for_report()


def _versions(project: Project) -> dict[str, Any]:
    return {
        "rigup": __version__,
        "toolkit": "a checkout" if (toolkit_root() / "pyproject.toml").exists() else "a wheel",
        "pyinfra": version("pyinfra"),
        "python": platform.python_version(),
        "here": platform.platform(),
        "lock": project.lock_digest or "none",
    }


def _text(
    args: argparse.Namespace, project: Project, entry: HostEntry, sections: dict[str, Any], secrets: list[str]
) -> str:
    """The report without the secrets of the host, the run, the inventory and the files that it names."""
    redactor = Redactor([*secrets, *inventory_secrets(project.root, entry.data)])
    if args.html:
        return report_page(entry.name, origin_of(project, None), redactor.value(sections))
    return report_text(entry.name, time_text(time.time()), sections, redactor)
