"""For deploy scripts that plain pyinfra runs: the plans and settings of pyinfra's current host."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from pyinfra.api.exceptions import DeployError

from rigup.catalogue.catalogue import load_catalogue
from rigup.errors import RigupError
from rigup.facts.probe import Probe, read_probe
from rigup.host import Host
from rigup.lock import load_lock
from rigup.plan import Plan
from rigup.preflight.checks import preflight
from rigup.project.inventory import LOCK, HostEntry
from rigup.project.planning import plan_host
from rigup.project.settings import read_settings
from rigup.settings import HostSettings
from rigup.toolkit import find_roles, toolkit_root

find_roles()  # a deploy script imports them after this; plain pyinfra finds only the working directory


class Deployment(NamedTuple):
    """The roles' arguments for one host."""

    plans: tuple[Plan, ...]
    probe: Probe
    settings: HostSettings


def deployment_of(host: Host) -> Deployment:
    """Plans the host's services and checks them against its probe; secret files are relative to the working directory.

    Raises DeployError with every reason against the deployment.
    """
    data = dict(host.data.dict())
    if data.get("gateway") is not None:
        raise DeployError(
            f"{host.name}: a gateway needs the plans of the whole inventory\n    hint: set it up with rigup apply"
        )
    try:
        plans = _plans(host, data)
        fleet = {each.name: each.data.dict() for each in host.state.inventory}
        settings = read_settings(data, plans, Path.cwd(), fleet=fleet)
    except RigupError as error:
        raise DeployError(f"{error.message}\n    hint: {error.hint}") from None
    probe = read_probe(host)
    against = preflight(probe, plans, time.time(), wheelhouse=settings.packages.wheelhouse is not None)
    findings = [*(f for plan in plans for f in plan.refusals), *against]
    if findings:
        raise DeployError("\n".join(f"{finding.message}\n    hint: {finding.hint}" for finding in findings))
    return Deployment(plans, probe, settings)


def _plans(host: Host, data: dict[str, Any]) -> tuple[Plan, ...]:
    group = host.groups[-1] if host.groups else host.name
    entry = HostEntry(host.name, group, data, dict.fromkeys(data, f"group_data/{group}.py"))
    lock = Path.cwd() / LOCK
    return plan_host(entry, load_catalogue(Path.cwd()), load_lock(lock if lock.exists() else toolkit_root() / LOCK))
