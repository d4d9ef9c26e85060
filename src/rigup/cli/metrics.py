"""`rigup metrics`: writes a Prometheus configuration and a Grafana dashboard for a fleet."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rigup.cli.output.lines import print_json, tell
from rigup.cli.output.typed_words import add_number
from rigup.cli.sessions import session as hosts
from rigup.errors import InputError
from rigup.monitoring.alerts import alerts_yml
from rigup.monitoring.dashboard import dashboard
from rigup.monitoring.scrape_config import ScrapeConfig, prometheus_yml
from rigup.project.inventory import load_project
from rigup.project.scrape_targets import scraping_of
from rigup.regular_files import replace_file

EPILOG = """\
examples:
  rigup metrics --out monitoring              write prometheus.yml, alerts.yml and dashboard.json
  rigup metrics --out m --from gpu1.lan       write them for a Prometheus on gpu1.lan, which also reaches its loopback
  rigup metrics --json                        print the targets and what Prometheus cannot reach; write nothing

rigup contacts no host and reads no API key: a target that needs one names the file to put it in.

exit codes: 0 written, 1 no target that Prometheus can reach, 2 usage error, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds INVENTORY and the options."""
    hosts.add_inventory(parser)
    parser.add_argument("--out", metavar="DIR", type=Path, help="write the files into DIR (default monitoring)")
    parser.add_argument(
        "--from", dest="here", metavar="HOST", help="name the host of the inventory that runs Prometheus"
    )
    add_number(parser, "--interval", "scrape at this interval (default 15)", 15, 1, 3600, metavar="SECONDS")
    hosts.add_limit(parser)
    parser.add_argument("--json", action="store_true", help="print the targets as JSON")


def run(args: argparse.Namespace) -> int:
    """Writes the files and warns about unreachable targets; returns 1 if none can be reached."""
    project = load_project(args.inventory, args.limit)
    scraped = scraping_of(project, args.here)
    folder = args.out or (None if args.json else Path("monitoring"))
    written = _write(folder, scraped, project.inventory.name, args.interval) if folder else []
    _warn(scraped, folder)
    if args.json:
        print_json(as_json(scraped, written))
    else:
        for path in written:
            print(f"wrote {path}")
        names = {target.labels["host"] for target in scraped.targets}
        print(f"{_counted(len(scraped.targets), 'target')} on {_counted(len(names), 'host')}")
    return 0 if scraped.targets else 1


def as_json(scraped: ScrapeConfig, written: list[Path]) -> dict[str, Any]:
    """The targets for scripts; schema 1."""
    return {
        "schema": 1,
        "targets": [asdict(target) for target in scraped.targets],
        "left_out": [asdict(out) for out in scraped.left_out],
        "written": [str(path) for path in written],
    }


def _write(folder: Path, scraped: ScrapeConfig, source: str, interval: int) -> list[Path]:
    files = {
        "prometheus.yml": prometheus_yml(scraped, source, interval),
        "alerts.yml": alerts_yml(),
        "dashboard.json": dashboard(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            replace_file(folder / name, text.encode())
    except OSError as error:
        raise InputError(f"--out: {folder}: {error.strerror}", "name another folder") from None
    return [folder / name for name in files]


def _warn(scraped: ScrapeConfig, folder: Path | None) -> None:
    """Prints manual steps to standard error: API keys to install, targets left out."""
    for target in scraped.targets:
        if target.key_file:
            host, service = target.labels["host"], target.labels["service"]
            tell(
                f"{host}: {service}: reading its metrics requires the API key of the service; put it into "
                f"{(folder or Path()) / target.key_file}, readable by Prometheus only"
            )
    for out in scraped.left_out:
        tell(f"{out.host}: {out.what} left out: {out.why}\n  hint: {out.hint}")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
