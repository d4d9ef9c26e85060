"""A service as a systemd unit: its release, its API key, and the question that it must answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyinfra.api import deploy

from rigup import layout
from rigup.operations.gpu_binding import MANIFEST_KEY
from rigup.operations.releases import SET_KEY, Part, Release, release
from rigup.operations.secrets import secret_file
from rigup.plan import Plan
from rigup.render.api_key import wants_key
from rigup.render.quadlet import service_file
from rigup.verify.generation import ask_release, ask_service


@deploy("service")
def service(
    plan: Plan,
    build_name: str,
    api_key: str | None,
    restart: bool = False,
    why: str = "",
    afterwards: Callable[[Any], None] = lambda host: None,
    settle: Callable[[Any], Plan] | None = None,
    part: Part | None = None,
) -> None:
    """Have the plan's service running its release and answering; `restart` has it started anew whatever it does.

    why: what is wrong with the build that it runs now, for the step's name. afterwards: called with the host once the
    service has answered. settle: gives the plan as it is once a driver can be asked which cards there are.
    part: this host's in a service that spans several, of which the head alone has the API.
    """

    def check(host: Any) -> None:
        if plan.rank == 0:
            ask_service(host, plan, given_up=part.given_up if part else str)
        afterwards(host)

    def check_earlier(host: Any, manifest: Mapping[str, Any]) -> None:
        ask_release(host, plan.service.name, manifest.get("command") or (), plan.start_timeout_s)

    if wants_key(plan.service) and plan.rank == 0:
        key = secret_file(
            name=f"API key of {plan.service.name}",
            path=f"{layout.service_folder(plan.service.name)}/api-key",
            value=api_key,
        )
        restart = restart or key.will_change
    release(
        name=f"release of {plan.service.name}" + (f": {why}" if why else ""),
        wanted=release_of(plan, build_name),
        check=check,
        check_earlier=check_earlier,
        restart=restart,
        settle=(lambda host: release_of(settle(host), build_name)) if settle else None,
        part=part,
    )


def release_of(plan: Plan, build_name: str) -> Release:
    """What the service's release consists of; equal plans on equal builds give equal releases."""
    checkpoint = plan.checkpoint
    manifest: dict[str, Any] = {
        "build": build_name,
        "checkpoint": checkpoint
        and {"repo": checkpoint.repo, "quant": checkpoint.quant, "revision": checkpoint.revision},
        "command": list(plan.command),
        "environment": plan.environment,
    }
    if plan.gpu_uuids:
        manifest[MANIFEST_KEY] = [[index, uuid] for index, uuid in plan.gpu_uuids.items()]
    if plan.nodes:
        manifest[SET_KEY] = {"id": plan.whole, "nodes": [node.model_dump(mode="json") for node in plan.nodes]}
    return Release(plan.service.name, service_file(plan, f"{layout.BUILDS}/{build_name}"), manifest)
