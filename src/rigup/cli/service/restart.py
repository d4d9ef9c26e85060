"""`rigup restart`: restarts services; behind a gateway, one host after another."""

from __future__ import annotations

import argparse

from rigup.cli.service import power
from rigup.cli.sessions import session as hosts

EPILOG = """\
examples:
  rigup restart chat                     restart one service on every host that has it, once its requests have ended
  rigup restart chat --limit gpu1.lan
  rigup restart --yes --json             restart everything, for scripts

Behind a gateway, hosts restart one after another: each gets no requests until it answers again.

exit codes: 0 every service answers, 1 a host failed, or declined, 2 usage error or no host reachable, 130 cancelled
"""

run = power.run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds those of `rigup stop`, and --allow-outage."""
    power.add_arguments(parser)
    hosts.add_allow_outage(parser)
