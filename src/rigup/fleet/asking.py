"""What `rigup bench` and `rigup eval` share: asking the services of an inventory, and saying which one was asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from rigup.errors import HostFailed, InputError, RigupError
from rigup.facts.probe import Probe
from rigup.fleet.preflight import foreign
from rigup.fleet.runner import Run, load_provision
from rigup.operations import jobs
from rigup.operations.builds import name_of
from rigup.plan import Finding, Plan

# what says nothing about how the service runs
BESIDE_THE_PLAN = {"host", "warnings", "refusals", "silenced", "alternatives", "figures"}

# takes a host, one of its plans and its probe, and returns the result that is kept
Ask = Callable[[Any, Plan, Probe], dict[str, Any]]


class AskingRun(Run):
    """A run that asks services; what it changes on a host is the lease alone."""

    def ask(self, service: str | None, ask: Ask) -> list[dict[str, Any]]:
        """What `ask` finds out of every service, or those of this name: hosts side by side, a host's one by one.

        A RigupError of `ask` fails the host, once its other services were asked.
        """
        found: list[dict[str, Any]] = []

        def work(host: Any) -> None:
            result, errors = self.results[host.name], []
            assert result.probe is not None
            for plan in self.plans[host.name]:
                if service not in (None, plan.service.name) or plan.rank:  # the head alone has the API
                    continue
                if jobs.cancelled():
                    raise jobs.Cancelled(f"{host.name}: {plan.service.name}: cancelled before it was asked")
                try:
                    found.append(_asked(host, plan, result.probe, ask))
                except jobs.Cancelled:
                    raise
                except RigupError as error:
                    errors.append(error)
            result.state = "unchanged"
            if errors:
                result.errors += errors[:-1]
                raise errors[-1]

        self._each(work)
        return found

    def _against(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """Of what an apply is refused for, what leaves nothing to be asked."""
        return foreign(super()._against(name, probe), probe, self.plans[name])


def _asked(host: Any, plan: Plan, probe: Probe, ask: Ask) -> dict[str, Any]:
    if plan.service.name not in probe.releases:
        message = f"{host.name}: {plan.service.name} was never applied here"
        raise HostFailed(message, "rigup diff shows what apply would do")
    return ask(host, plan, probe)


def check_service(plans: dict[str, tuple[Plan, ...]], service: str | None) -> None:
    """Raises InputError where no host of these has a service of that name, or any."""
    known = list(dict.fromkeys(plan.service.name for each in plans.values() for plan in each))
    if not known:
        raise InputError(
            "no host of these is to serve anything, so there is nothing to ask",
            "rigup plan shows what each host serves",
        )
    if service is not None and service not in known:
        raise InputError(f'--service: no service "{service}" here', f"services: {', '.join(known)}")


def about(host: str, plan: Plan, probe: Probe) -> dict[str, Any]:
    """What was asked: the plan, and the release that really runs there."""
    assert plan.build is not None and plan.checkpoint is not None and plan.parallel is not None
    name = plan.service.name
    release = probe.releases[name]
    load_provision()
    from roles.service import release_of

    planned = release_of(plan, name_of(plan.build, probe.architecture, probe.os)).manifest
    return {
        "host": host,
        "group": plan.group,
        "service": name,
        "engine": plan.build.engine,
        "version": plan.build.version,
        "build": release.get("build"),
        "checkpoint": release.get("checkpoint"),
        "parallel": plan.parallel.model_dump(),
        "context": plan.context,
        "plan": plan_digest(plan),
        "release": probe.current.get(name),
        "drift": [key for key in planned if release.get(key) != planned[key]],
        "driver": probe.nvidia.loaded,
        "gpus": [gpu.name for gpu in probe.gpus],
    }


def plan_digest(plan: Plan) -> str:
    """Equal for plans that put the same on a host, whatever the host's name, and whatever was said of other choices."""
    content = json.dumps(plan.model_dump(mode="json", exclude=BESIDE_THE_PLAN), sort_keys=True)
    return "sha256:" + hashlib.sha256(content.encode()).hexdigest()
