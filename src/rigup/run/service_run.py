"""The common part of `rigup bench` and `rigup eval`: runs over an inventory's services, and descriptions of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from rigup.errors import InputError, RigupError
from rigup.facts.probe import Probe
from rigup.host import Host
from rigup.operations.builds.source import name_of
from rigup.operations.primitives import jobs
from rigup.operations.service.health import load_member
from rigup.operations.service.history import check_applied
from rigup.plan import BoundPlan, Finding, Plan
from rigup.preflight.checks import unsupported_host_findings
from rigup.run.runner import Run
from rigup.systemd.release import as_kept, release_of

# parts of a plan that do not affect how the service runs
BESIDE_THE_PLAN = {"host", "warnings", "refusals", "silenced", "alternatives", "figures"}

# called with a host, one of its plans, that of the service in it (another one only in a swap group) and the host's
# probe; returns the result to store
Ask = Callable[[Any, BoundPlan, Plan, Probe], dict[str, Any]]


class ServiceRun(Run):
    """A run that sends requests to services; on a host it changes only the lease."""

    def ask(self, service: str | None, ask: Ask) -> list[dict[str, Any]]:
        """The results of `ask` for every service, or those of this name: hosts concurrently, services one by one.

        A RigupError of `ask` fails the host, but its other services are asked as well.
        """
        found: list[dict[str, Any]] = []

        def work(host: Host) -> None:
            result, errors = self.results[host.name], []
            assert result.probe is not None
            heads = (plan for plan in self.bound(host.name) if not plan.rank)  # only the head has the API
            for plan, member in ((whole, each) for whole in heads for each in whole.members or (whole,)):
                if service not in (None, member.service.name):
                    continue
                if jobs.cancelled():
                    raise jobs.Cancelled(f"{host.name}: {member.service.name}: cancelled before its turn")
                try:
                    found.append(_asked(host, plan, member, result.probe, ask))
                except jobs.Cancelled:
                    raise
                except RigupError as error:
                    errors.append(error)
            result.state = "unchanged"
            if errors:
                result.errors += errors[:-1]
                raise errors[-1]

        self.context.each(work)
        return found

    def _blocking_findings(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """The findings of an apply that make requests impossible."""
        return unsupported_host_findings(super()._blocking_findings(name, probe), probe, self.plans[name])


def _asked(host: Host, plan: BoundPlan, member: Plan, probe: Probe, ask: Ask) -> dict[str, Any]:
    check_applied(host.name, plan.service.name, probe)
    if plan.members:
        load_member(host, plan, member)
    return ask(host, plan, member, probe)


def check_service(plans: dict[str, tuple[Plan, ...]], service: str | None) -> None:
    """Raises InputError if none of these hosts has a service of that name, or any service."""
    all_of_them = [member for each in plans.values() for plan in each for member in plan.members or (plan,)]
    known = list(dict.fromkeys(plan.service.name for plan in all_of_them))
    if not known:
        raise InputError(
            "none of these hosts serves anything",
            "run rigup plan to see what each host serves",
        )
    if service is not None and service not in known:
        raise InputError(f'--service: no service "{service}" here', f"choose from: {', '.join(known)}")


def about(host: str, plan: BoundPlan, member: Plan, probe: Probe) -> dict[str, Any]:
    """The description of a result: the plan, and the release that runs. member: the plan of the service in it."""
    assert plan.build is not None and member.checkpoint is not None and member.parallel is not None
    unit, name = plan.service.name, member.service.name
    release = probe.releases[unit]
    planned = as_kept(release_of(plan, name_of(plan.build, probe.architecture, probe.os)).manifest, release)
    return {
        "host": host,
        "group": plan.group,
        "service": name,
        "engine": plan.build.engine,
        "version": plan.build.version,
        "build": release.get("build"),
        "checkpoint": (release.get("members") or {}).get(name, release).get("checkpoint"),
        "parallel": member.parallel.model_dump(),
        "context": member.context,
        "plan": plan_digest(member if plan.members else plan.offline),
        "release": probe.current.get(unit),
        "drift": [key for key in planned if release.get(key) != planned[key]],
        "driver": probe.nvidia.loaded,
        "gpus": [gpu.name for gpu in probe.gpus],
    }


def plan_digest(plan: Plan) -> str:
    """A digest that is equal for plans that install the same, regardless of the host's name and rejected candidates."""
    content = json.dumps(plan.model_dump(mode="json", exclude=BESIDE_THE_PLAN), sort_keys=True)
    return "sha256:" + hashlib.sha256(content.encode()).hexdigest()
