"""What a status page wants from a host beside its probe: the releases that it keeps, and what must not be shown.

One question a host, all hosts side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gevent

from rigup import layout
from rigup.errors import HostFailed
from rigup.fleet.report_asking import SECRETS
from rigup.fleet.runner import Run
from rigup.operations import remote
from rigup.operations.kept_releases import LIST, KeptRelease, parse_kept
from rigup.operations.releases import ANSWERED

_BETWEEN = "==== releases ===="


@dataclass(frozen=True)
class History:
    """What one host said. kept: releases by service, oldest first. secrets: for the redaction, and nothing else."""

    kept: dict[str, tuple[KeptRelease, ...]]
    secrets: tuple[str, ...] = field(default=(), repr=False)


def histories_of(run: Run) -> dict[str, History]:
    """By host; those that are not connected or do not answer are left out."""
    asked = {host.name: run.state.pool.spawn(_asked, host) for host in run.state.inventory if host.connected}
    gevent.joinall(list(asked.values()))
    return {name: greenlet.value for name, greenlet in asked.items() if greenlet.value is not None}


def _asked(host: Any) -> History | None:
    try:
        said = remote.script(host, f"{SECRETS}\necho '{_BETWEEN}'\n{LIST}", layout.CONFIGURATION, ANSWERED)
    except (HostFailed, *remote.LOST):
        return None
    secrets, _, releases = said.rpartition(f"{_BETWEEN}\n") if _BETWEEN + "\n" in said else (said, "", "")
    return History(parse_kept(releases), tuple(secret for secret in secrets.splitlines() if secret))
