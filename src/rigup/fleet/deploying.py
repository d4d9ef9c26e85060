"""For deploy scripts that plain pyinfra runs: a host's plans and settings, with nothing but the host given."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from pyinfra.api.exceptions import DeployError

from rigup.catalogue.catalogue import load_catalogue
from rigup.errors import RigupError
from rigup.facts.probe import Probe, read_probe
from rigup.fleet.inventory import LOCK, HostEntry
from rigup.fleet.planning import plan_host
from rigup.fleet.preflight import preflight
from rigup.fleet.settings import Settings, read_settings
from rigup.lock import load_lock
from rigup.plan import Plan
from rigup.toolkit import find_roles, toolkit_root

find_roles()  # a deploy script imports them after this, and plain pyinfra knows the working directory only


class Deployment(NamedTuple):
    """What the roles take for one host."""

    plans: tuple[Plan, ...]
    probe: Probe
    settings: Settings


def deployment_of(host: Any) -> Deployment:
    """Plans the host's services and holds them against its probe; secrets are relative to the working directory.

    Raises DeployError with every reason not to begin.
    """
    data = dict(host.data.dict())
    try:
        plans = _plans(host, data)
        settings = read_settings(data, plans, Path.cwd())
    except RigupError as error:
        raise DeployError(f"{error.message}\n    hint: {error.hint}") from None
    probe = read_probe(host)
    findings = [*(f for plan in plans for f in plan.refusals), *preflight(probe, plans, time.time())]
    if findings:
        raise DeployError("\n".join(f"{finding.message}\n    hint: {finding.hint}" for finding in findings))
    return Deployment(plans, probe, settings)


def _plans(host: Any, data: dict[str, Any]) -> tuple[Plan, ...]:
    group = host.groups[-1] if host.groups else host.name
    entry = HostEntry(host.name, group, data, dict.fromkeys(data, f"group_data/{group}.py"))
    lock = Path.cwd() / LOCK
    return plan_host(entry, load_catalogue(Path.cwd()), load_lock(lock if lock.exists() else toolkit_root() / LOCK))
