"""The release of a service: its unit file, and a manifest of what it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rigup import layout
from rigup.plan import BoundPlan, Checkpoint, Plan
from rigup.systemd.quadlet import service_file

GPUS_KEY = "gpus"
"""Key of a manifest: the UUID of each GPU index of the plan."""
GROUP_KEY = "set"
"""Key of a manifest: the node group that serves it, with a digest of the commands of all members."""
MEMBERS_KEY = "members"
"""Key of a manifest: of a swap group, what each service loads, under which name, and its preset."""
EXPECTED_KEY = "expected_answer"
"""Key of a manifest, or of each of its members: what its answer must contain, as `rigup.service.Service` has it."""


class ServiceRelease(NamedTuple):
    """The unit of a release, and a manifest of what it was made from (build, checkpoint, argv, environment).

    unit: the text of a unit, or of a Quadlet file with a [Container] section, from which podman generates a unit.
    """

    service: str
    unit: str
    manifest: dict[str, Any]


def release_of(plan: BoundPlan, build_name: str) -> ServiceRelease:
    """The release of a plan with the named build; equal plans and builds give equal releases."""
    manifest: dict[str, Any] = {
        "build": build_name,
        **_loaded(plan),
        "command": list(plan.command),
        "environment": plan.environment,
    }
    if plan.members:
        manifest[MEMBERS_KEY] = {
            each.service.name: {
                "model": each.served_name,
                "preset": each.swap.preset,
                **_loaded(each),
                EXPECTED_KEY: each.service.expected_answer,
            }
            for each in plan.members
            if each.swap
        }
    else:
        manifest[EXPECTED_KEY] = plan.service.expected_answer
    if plan.gpu_uuids:
        manifest[GPUS_KEY] = [[index, uuid] for index, uuid in plan.gpu_uuids.items()]
    if plan.nodes:
        manifest[GROUP_KEY] = {"id": plan.group_digest, "nodes": [node.model_dump(mode="json") for node in plan.nodes]}
    return ServiceRelease(plan.service.name, service_file(plan, f"{layout.BUILDS}/{build_name}"), manifest)


def as_kept(wanted: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest as the rigup would have written it that wrote `kept`: before December 2026, without what it expects.

    Nothing runs otherwise with that key: a release that lacks it is not another one.
    """
    found = dict(wanted)
    if EXPECTED_KEY not in kept:
        found.pop(EXPECTED_KEY, None)
    if members := wanted.get(MEMBERS_KEY):
        there = kept.get(MEMBERS_KEY) or {}
        found[MEMBERS_KEY] = {name: as_kept(one, there.get(name, {})) for name, one in members.items()}
    return found


def without_expected(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest without what the service is expected to answer: what it takes a start to change."""
    return as_kept(manifest, {})


def _loaded(plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = {"checkpoint": plan.checkpoint and _record(plan.checkpoint)}
    return found | ({"draft": _record(plan.draft)} if plan.draft else {})


def _record(checkpoint: Checkpoint) -> dict[str, Any]:
    """place: the folder of the host in which its files lie, if rigup did not download them."""
    found = checkpoint.model_dump(include={"repo", "quant", "revision"})
    return found | ({"place": checkpoint.host_folder} if checkpoint.host_folder else {})
