"""`rigup report`: one redacted file with what somebody needs who is to help with a host."""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.cli import hosts
from rigup.errors import InputError, RigupError

if TYPE_CHECKING:
    from rigup.fleet.examination import Examination
    from rigup.fleet.inventory import HostEntry, Project
    from rigup.fleet.redaction import Redactor
    from rigup.plan import Plan

EPILOG = """\
examples:
  rigup report gpu1.lan                        writes rigup-report-gpu1.lan-<time>.txt
  rigup report gpu1.lan --output -             to standard output
  rigup report gpu1.lan --html                 the same as one page: writes rigup-report-gpu1.lan-<time>.html

In it: versions, what the inventory says of the host, its plans, its probe, what differs, its last record, the last
lines of the journals of what rigup runs there. Secrets are taken out; names of hosts are not.

exit codes: 0 written, 1 written, and something is missing because a plan is refused or the host did not answer,
2 could not even ask
"""

LARGEST_SECRET = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """HOST, INVENTORY, where to and how to become root."""
    parser.add_argument("host", metavar="HOST", help="a host of the inventory")
    hosts.add_inventory(parser)
    parser.add_argument("--output", "-o", metavar="FILE", help="default: rigup-report-HOST-TIME.txt here; - prints it")
    parser.add_argument("--html", action="store_true", help="a page to read in place of the text, without network")
    parser.add_argument("--json", action="store_true", help="say as JSON which file was written")
    hosts.add_sudo_password(parser)


def run(args: argparse.Namespace) -> int:
    """Gathers, redacts, writes. A file that cannot be written is said before the host is asked."""
    hosts.patch_for_many_hosts()
    from rigup.cli.page.writing import STANDARD_OUTPUT, check_writable, write_page
    from rigup.fleet.inventory import load_project
    from rigup.fleet.planning import plan_project
    from rigup.fleet.sets import with_whole_sets

    project = load_project(args.inventory, args.host)
    if len(project.hosts) != 1:
        raise InputError(f"{args.host}: {len(project.hosts)} hosts", "a report is of one host: name it")
    (entry,) = project.hosts
    path = args.output or _default_path(entry.name, "html" if args.html else "txt")
    check_writable(path, "--output")
    args.limit = ",".join(host.name for host in with_whole_sets(project).hosts)  # a service over several is theirs
    plans = plan_project(project)
    sections, secrets, whole = _gathered(args, project, entry, plans)
    text = _text(args, project, entry.name, sections, _redactor(project, entry, secrets))
    write_page(path, text, "--output", mode=0o600)
    if path != STANDARD_OUTPUT:
        _say_where(path, args.json)
    return 0 if whole else 1


def _default_path(host: str, kind: str) -> str:
    name = host.rpartition("@")[2].replace("/", "_")
    return f"rigup-report-{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.{kind}"


def _gathered(
    args: argparse.Namespace, project: Project, entry: HostEntry, plans: tuple[Plan, ...]
) -> tuple[dict[str, Any], list[str], bool]:
    """The sections, the secrets that the host has, and whether nothing is missing."""
    from rigup.cli.examining import examination
    from rigup.cli.plan_json import plan_as_json

    sections: dict[str, Any] = {
        "versions": _versions(project),
        "inventory": {key: entry.data[key] for key in ("rig", "services") if key in entry.data},
        "plans": [plan_as_json(plan) for plan in plans],
        "last record here": _last_record(entry.name),
    }
    try:
        with examination(args, lambda found: _examine(found)) as examined:
            result, asked = examined.results[entry.name], examined.asked.get(entry.name)
            sections |= {
                "errors": [{"message": error.message, "hint": error.hint} for error in result.errors],
                "differs": {
                    "state": result.state,
                    "changes": [f"{change.role}: {change.step}" for change in result.changes],
                    "drift": [drift.as_json() for drift in examined.drift[entry.name]],
                },
                "probe": result.probe.as_json() if result.probe else None,
                "last record there": asked.record if asked else "",
                "journals": asked.journal if asked else "",
            }
            secrets = [*(asked.secrets if asked else ()), examined.contact.sudo_password or ""]
            return sections, secrets, asked is not None and not result.errors
    except RigupError as error:
        return sections | {"errors": [{"message": error.message, "hint": error.hint}]}, [], False


def _last_record(host: str) -> list[dict[str, Any]] | str:
    """This machine's, or why it cannot be read: the rest of the report needs it least of all."""
    from rigup.fleet.records import kept_here

    try:
        return kept_here(host)[-1:]
    except InputError as error:
        return error.message


def _examine(examined: Examination) -> None:
    examined.compare_all()
    examined.ask_for_report()


def _versions(project: Project) -> dict[str, Any]:
    from importlib.metadata import version

    from rigup import __version__
    from rigup.toolkit import toolkit_root

    lock = project.lock_path
    return {
        "rigup": __version__,
        "toolkit": "a checkout" if (toolkit_root() / "pyproject.toml").exists() else "a wheel",
        "pyinfra": version("pyinfra"),
        "python": platform.python_version(),
        "here": platform.platform(),
        "lock": hashlib.sha256(lock.read_bytes()).hexdigest() if lock.exists() else "none",
    }


def _redactor(project: Project, entry: HostEntry, secrets: list[str]) -> Redactor:
    """Knows what the host and the run have, and what the inventory says or has in its files."""
    from rigup.fleet.redaction import Redactor

    return Redactor([*secrets, *secrets_said(project.root, entry.data)])


def secrets_said(root: Path, data: Any) -> Iterator[str]:
    """Each value whose key sounds like a secret, and the content of each file that a key ending in _file names."""
    from rigup.fleet.redaction import secret_texts

    for key, value in data.items() if isinstance(data, dict) else ():
        if isinstance(value, dict):
            yield from secrets_said(root, value)
        elif isinstance(value, str) and str(key).endswith("_file"):
            path = root / Path(value).expanduser()
            with suppress(OSError):
                if path.is_file() and path.stat().st_size <= LARGEST_SECRET:
                    yield path.read_text(errors="replace").strip()
        else:
            yield from secret_texts(str(key), value)


def _text(args: argparse.Namespace, project: Project, host: str, sections: dict[str, Any], redactor: Redactor) -> str:
    if args.html:
        from rigup.cli.page.gathering import origin_of
        from rigup.cli.page.report_page import report_page

        return report_page(host, origin_of(project, None), redactor.value(sections))
    from rigup.fleet.report_text import report_text
    from rigup.units import time_text

    return report_text(host, time_text(time.time()), sections, redactor)


def _say_where(path: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"schema": 1, "file": path}))
    else:
        print(f"{path}: read it before you show it to others")
        print("secrets were taken out; names of hosts and addresses were not", file=sys.stderr)
