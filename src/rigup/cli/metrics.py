"""`rigup metrics`: Prometheus' configuration and Grafana's dashboard for a fleet, written here."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.cli import hosts

if TYPE_CHECKING:
    from rigup.render.scrape_config import Scraping

EPILOG = """\
examples:
  rigup metrics --out monitoring              prometheus.yml, alerts.yml and dashboard.json of the only inventory
  rigup metrics --out m --from gpu1.lan       for a Prometheus that runs on gpu1.lan, which reaches its loopback, too
  rigup metrics --json                        the targets, and what cannot be reached; writes nothing without --out

No host is asked, and no key is read: a target that wants one has the file that it is to lie in.

exit codes: 0 written, 1 there is nothing that Prometheus would reach, 2 could not even ask
"""
DEFAULT_SECONDS = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """INVENTORY, --out, --from, --interval, --limit and --json."""
    hosts.add_inventory(parser)
    parser.add_argument("--out", metavar="DIR", type=Path, help="where the files go (default: monitoring)")
    parser.add_argument("--from", dest="here", metavar="HOST", help="the host that Prometheus runs on, if it is one")
    parser.add_argument(
        "--interval", metavar="SECONDS", type=_seconds, default=DEFAULT_SECONDS, help="between two scrapes (default 15)"
    )
    hosts.add_limit(parser)
    parser.add_argument("--json", action="store_true", help="the targets as JSON on standard output")


def run(args: argparse.Namespace) -> int:
    """Writes the files and says what cannot be reached; returns 1 where nothing can."""
    from rigup.fleet.inventory import load_project
    from rigup.fleet.scraping import scraping_of

    project = load_project(args.inventory, args.limit)
    scraped = scraping_of(project, args.here)
    folder = args.out or (None if args.json else Path("monitoring"))
    written = _write(folder, scraped, project.inventory.name, args.interval) if folder else []
    _warn(scraped, folder)
    if args.json:
        json.dump(as_json(scraped, written), sys.stdout, indent=1)
        print()
    else:
        for path in written:
            print(f"wrote {path}")
        hosts = {target.labels["host"] for target in scraped.targets}
        print(f"{_counted(len(scraped.targets), 'target')} on {_counted(len(hosts), 'host')}")
    return 0 if scraped.targets else 1


def as_json(scraped: Scraping, written: list[Path]) -> dict[str, Any]:
    """Schema 1."""
    from dataclasses import asdict

    return {
        "schema": 1,
        "targets": [asdict(target) for target in scraped.targets],
        "left_out": [asdict(out) for out in scraped.left_out],
        "written": [str(path) for path in written],
    }


def _write(folder: Path, scraped: Scraping, source: str, interval: int) -> list[Path]:
    from rigup.errors import InputError
    from rigup.render.dashboard import dashboard
    from rigup.render.monitoring_alerts import alerts_yml
    from rigup.render.scrape_config import prometheus_yml

    files = {
        "prometheus.yml": prometheus_yml(scraped, source, interval),
        "alerts.yml": alerts_yml(),
        "dashboard.json": dashboard(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            new = folder / f".{name}.new"
            new.write_text(text)
            new.replace(folder / name)
    except OSError as error:
        raise InputError(f"--out: {folder}: {error.strerror}", "name another folder") from None
    return [folder / name for name in files]


def _warn(scraped: Scraping, folder: Path | None) -> None:
    """What a person has to do, on standard error: keys to put in place, targets that are not there."""
    for target in scraped.targets:
        if target.key_file:
            host, service = target.labels["host"], target.labels["service"]
            print(
                f"{host}: {service}: its metrics want the service's API key: put it into "
                f"{(folder or Path()) / target.key_file}, for Prometheus alone to read",
                file=sys.stderr,
            )
    for out in scraped.left_out:
        print(f"{out.host}: {out.what} is left out: {out.why}\n  hint: {out.hint}", file=sys.stderr)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _seconds(text: str) -> int:
    if not text.isdecimal() or len(text) > 4 or not 1 <= int(text) <= 3600:
        raise argparse.ArgumentTypeError(f'"{text}" is not 1 to 3600 seconds')
    return int(text)
