"""`rigup verify HOST`: checks that the links between a host's GPUs do what they can, and that the cards are well.

With --load, also under load.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from rigup.bench.gpu_load import loads
from rigup.cli.output import results as summary
from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json
from rigup.cli.output.typed_words import add_number
from rigup.cli.sessions import session as hosts
from rigup.cli.sessions import unplanned
from rigup.cli.verify.link_tables import show
from rigup.errors import InputError
from rigup.project.inventory import load_project
from rigup.run.result import exit_code
from rigup.run.verification import VerifyRun

EPILOG = """\
examples:
  rigup verify gpu1.lan                 read every link, and measure those of cards with free memory
  rigup verify quad_3090 --read-only    copy nothing to the cards of this group
  rigup verify gpu1.lan --load 120      keep its GPUs busy for two minutes and report which are throttled
  rigup verify gpu1.lan --json

A measurement copies some GB from the host to each card, and between each pair, and compares what arrived. It takes
seconds and 128 MiB of each card beside CUDA's own; a card with less than 1 GiB free is not measured.

--load sends 32 requests at a time to all services of the host together; where none runs, it multiplies matrices with
the torch of an installed build. Twice a second, NVML is asked for clock, power, temperature and what limits the
clock. Run it longer than the case takes to heat up.

exit codes: 0 all is well, 1 a problem, or a host failed, 2 usage error or no host reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds HOST, INVENTORY and the options."""
    parser.add_argument("host", metavar="HOST", help="host or group of the inventory; several with commas")
    hosts.add_inventory(parser)
    parser.add_argument("--read-only", action="store_true", help="copy no data to the cards")
    add_number(parser, "--load", "load the GPUs for S seconds and watch them", None, 5, 3600, metavar="S")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    hosts.add_sudo_password(parser)


def run(args: argparse.Namespace) -> int:
    """Reads and shows the links; changes nothing."""
    with hosts.watched(_opened(args)) as (found, view), view:
        found.connect(take_lease=False)
        found.read_links(not args.read_only, loads(found, args.load) if args.load else {})
    results = list(found.results.values())
    if args.json:
        print_json(as_json(found))
    else:
        console = Console(highlight=False)
        for name, links in found.links.items():
            show(name, links, found.found[name], found.results[name].probe, console, found.loads.get(name))
        summary.show_failed(results, console)
    return exit_code(results)


def _opened(args: argparse.Namespace) -> VerifyRun:
    try:
        project = load_project(args.inventory, args.host)
    except InputError as error:
        raise InputError(error.message.replace("--limit:", "HOST:", 1), error.hint) from None
    return unplanned.open_unplanned(args, project, VerifyRun)


def as_json(found: VerifyRun) -> dict[str, Any]:
    """The links and findings of each host, for scripts. Within a schema, keys are only added."""
    rows = []
    for name, result in found.results.items():
        links = found.links.get(name)
        rows.append(
            {
                "host": name,
                "state": {"unchanged": "well", "differs": "problems"}.get(result.state, result.state),
                "findings": [asdict(one) for one in found.found.get(name, ())],
                "links": links.model_dump() if links else None,
                "load": load.model_dump() if (load := found.loads.get(name)) else None,
                "errors": [error.as_json() for error in result.errors],
            }
        )
    return {"schema": 1, "hosts": rows}
