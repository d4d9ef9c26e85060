"""The parts of a host that a status page needs besides its probe: retained releases, and secrets to redact.

It reads them with one command per host, on all hosts concurrently.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import gevent

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.unreadable import Unreadable
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.service.history import LIST, RetainedRelease, parse_kept
from rigup.operations.service.releases import ANSWERED
from rigup.report.collect import SECRETS
from rigup.run.context import RunContext

_BETWEEN = "==== releases ===="


@dataclass(frozen=True)
class ReleaseHistory:
    """The releases of one host. kept: by service, oldest first. secrets: only for the redaction."""

    kept: dict[str, tuple[RetainedRelease, ...]]
    secrets: tuple[str, ...] = field(default=(), repr=False)


def histories_of(run: RunContext) -> dict[str, ReleaseHistory]:
    """The histories by host, without hosts that are not connected or do not respond."""
    asked = {host.name: run.state.pool.spawn(_asked, host) for host in run.state.inventory if host.connected}
    gevent.joinall(list(asked.values()))
    return {name: greenlet.value for name, greenlet in asked.items() if greenlet.value is not None}


def _asked(host: Host) -> ReleaseHistory | None:
    try:
        output = remote.script(host, f"{SECRETS}\necho '{_BETWEEN}'\n{LIST}", layout.CONFIGURATION, ANSWERED)
        return _read(output)
    except (HostFailed, Unreadable, *remote.CONNECTION_ERRORS):
        return None


def _read(output: str) -> ReleaseHistory:
    secrets, _, releases = output.rpartition(f"{_BETWEEN}\n") if _BETWEEN + "\n" in output else (output, "", "")
    return ReleaseHistory(parse_kept(releases), tuple(secret for secret in secrets.splitlines() if secret))
