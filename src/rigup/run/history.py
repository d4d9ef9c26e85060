"""The parts of a host that a status page needs besides its probe: retained releases, and secrets to redact.

It reads them with one command per host, on all hosts concurrently.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from rigup import layout
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.service.held import ANSWERED
from rigup.operations.service.history import LIST, RetainedRelease, parse_kept
from rigup.report.collect import SECRETS
from rigup.run.context import RunContext, ask_quietly

_BETWEEN = "==== releases ===="


@dataclass(frozen=True)
class ReleaseHistory:
    """The releases of one host. kept: by service, oldest first. secrets: only for the redaction."""

    kept: dict[str, tuple[RetainedRelease, ...]]
    secrets: tuple[str, ...] = field(default=(), repr=False)


def histories_of(run: RunContext) -> dict[str, ReleaseHistory]:
    """The histories by host, without hosts that are not connected or do not respond."""
    questions = {host.name: partial(_history, host) for host in run.state.inventory if host.connected}
    return ask_quietly(run.state, questions)


def _history(host: Host) -> ReleaseHistory:
    output = remote.script(host, f"{SECRETS}\necho '{_BETWEEN}'\n{LIST}", layout.CONFIGURATION, ANSWERED)
    secrets, _, releases = output.rpartition(f"{_BETWEEN}\n") if _BETWEEN + "\n" in output else (output, "", "")
    return ReleaseHistory(parse_kept(releases), tuple(secret for secret in secrets.splitlines() if secret))
