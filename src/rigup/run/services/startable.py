"""What is asked before a verb stops a service: whether it could start again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rigup.errors import Refused
from rigup.facts.probe import Probe
from rigup.preflight.starting import restart_findings


def check_startable(host: str, probe: Probe, service: str, manifest: Mapping[str, Any]) -> None:
    """Raises Refused with every reason why a release of a service would not start on this host.

    A service that runs goes on: nothing has been stopped for it.
    """
    found = tuple(restart_findings(probe, service, manifest))
    if found:
        why = "; ".join(dict.fromkeys(one.message for one in found))
        raise Refused(f"{host}: {service} was left as it is, since it would not start again: {why}", found[0].hint)
