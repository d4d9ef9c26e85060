"""`rigup status --html`: collects the content of a fleet's page from a finished inspection and the fleet's folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rigup.bench.store import kept_results
from rigup.cli.output.status_rows import WITHOUT
from rigup.cli.page.content import (
    DriftItem,
    Error,
    FleetContent,
    HostContent,
    ReleaseItem,
    ServiceContent,
    State,
    Version,
)
from rigup.cli.page.document import fleet_page
from rigup.cli.page.measurements import usable
from rigup.cli.page.memory_bar import GpuUse, uses_of
from rigup.cli.page.origin import origin_of
from rigup.operations.builds.source import name_of
from rigup.operations.service.history import RetainedRelease, with_replaced
from rigup.operations.service.history import differences as changes_between
from rigup.plan import Checkpoint, Plan
from rigup.preflight.driver import managed_driver
from rigup.report.inventory_secrets import inventory_secrets
from rigup.report.redaction import Redactor, secrets_within
from rigup.run.history import ReleaseHistory, histories_of
from rigup.run.result import unanswered
from rigup.units import time_text, uptime_text

if TYPE_CHECKING:
    from rigup.facts.probe import Probe
    from rigup.project.inventory import HostEntry
    from rigup.run.drift import Drift
    from rigup.run.inspection import Inspection
    from rigup.run.result import HostResult

Row = dict[str, Any]


def page_of(inspected: Inspection, rows: Sequence[Row], limit: str | None, gateways: Sequence[Row] = ()) -> str:
    """The page without secrets: those of hosts, releases and the inventory are redacted."""
    content, secrets = fleet_content(inspected, rows, limit, gateways)
    project = inspected.context.project
    secrets += [secret for entry in project.hosts for secret in inventory_secrets(project.root, entry.data)]
    secrets.append(inspected.context.connections.sudo_password or "")
    return fleet_page(Redactor(secrets).value(content))


def fleet_content(
    inspected: Inspection, rows: Sequence[Row], limit: str | None, gateways: Sequence[Row] = ()
) -> tuple[FleetContent, list[str]]:
    """The whole content, and the secrets of hosts and releases to redact. Sends one more command to each host.

    rows, gateways: of `rigup status`, for these hosts.
    """
    histories = histories_of(inspected.context)
    entries = {entry.name: entry for entry in inspected.context.project.hosts}
    hosts = [
        _host(inspected, entries[name], [row for row in rows if row["host"] == name], histories.get(name))
        for name in inspected.results
    ]
    secrets = [secret for history in histories.values() for secret in history.secrets]
    kept = [release for history in histories.values() for releases in history.kept.values() for release in releases]
    secrets += [secret for release in kept for secret in secrets_of(release.manifest)]
    return FleetContent(origin_of(inspected.context.project, limit), tuple(hosts), tuple(gateways)), secrets


def secrets_of(manifest: dict[str, Any]) -> Iterator[str]:
    """The secrets of a release, by their names in its environment and on its command line."""
    yield from secrets_within([manifest.get("environment"), manifest.get("command")])


def _host(inspected: Inspection, entry: HostEntry, rows: Sequence[Row], history: ReleaseHistory | None) -> HostContent:
    result, drift = inspected.results[entry.name], inspected.drift[entry.name]
    plans = {plan.service.name: plan for plan in inspected.plans[entry.name]}
    services = [
        _service(inspected, result, row, plans.get(row["service"]), drift, history)
        for row in rows
        if result.probe is not None or row["service"] in plans
    ]
    return HostContent(
        entry.name,
        entry.group,
        state_of(result, rows),
        tuple(Error(error.message, error.hint or "") for error in result.errors),
        tuple(_facts(result.probe)) if result.probe else (),
        tuple(_versions(result.probe, tuple(plans.values()))) if result.probe else (),
        _differences(drift, ""),
        tuple(services),
    )


def state_of(result: HostResult, rows: Iterable[Row]) -> State:
    """The state of a host in one word."""
    if result.state == "unreachable":
        return "unreachable"
    if any(unanswered(row["health"]) for row in rows):
        return "no answer"
    if result.state not in ("unchanged", "differs"):
        return "failed"
    return "drifted" if result.state == "differs" else "in order"


def _service(
    inspected: Inspection,
    result: HostResult,
    row: Row,
    plan: Plan | None,
    drift: Sequence[Drift],
    history: ReleaseHistory | None,
) -> ServiceContent:
    name = row["service"]
    releases = None if history is None else _releases(history.kept.get(name, ()))
    found = _differences(drift, name)
    named = {one.what for one in found}
    if plan is not None:
        # drift in the row beyond the probe's: kernels
        if "moe config" in row["drift"] and "moe config" not in named:
            found += (DriftItem("moe config", str(row.get("moe_config") or "")),)
        found += tuple(DriftItem(what, "") for what in row["drift"].split(", ") if what.startswith(WITHOUT))
    if plan is None or plan.build is None or plan.checkpoint is None:
        return ServiceContent(name, row, planned=plan is not None, drift=found, releases=releases)
    results = kept_results(inspected.context.project.root, result.host, name)
    return ServiceContent(
        name,
        row,
        ", ".join(f"{one.repo.rpartition('/')[2]} {one.quant}" for one in _served(plan)),
        f"{plan.build.engine} {plan.build.version}",
        True,
        tuple(_service_facts(plan, row)),
        memory_of(plan, row),
        found,
        releases,
        tuple(_without_requests(one) for one in results if usable(one)),
    )


def _served(plan: Plan) -> list[Checkpoint]:
    """What it serves, in a swap group in turn."""
    return list(dict.fromkeys(one.checkpoint for one in plan.members or (plan,) if one.checkpoint))


def _facts(probe: Probe) -> Iterator[tuple[str, str]]:
    names = [gpu.name.removeprefix("NVIDIA ").removeprefix("GeForce ") for gpu in probe.gpus]
    if names:
        yield "GPUs", ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))  # noqa: RUF001
    warm = [gpu.temperature_c for gpu in probe.gpus if gpu.temperature_c is not None]
    if warm:
        yield "hottest GPU", f"{max(warm)} °C"
    limits = {gpu.power.limit_w for gpu in probe.gpus if gpu.power.limit_w is not None}
    if limits:
        yield "power limit", ", ".join(f"{watts:g} W" for watts in sorted(limits))
    slow = [f"GPU {gpu.index}: {', '.join(gpu.throttled)}" for gpu in probe.gpus if gpu.throttled]
    if slow:
        yield "throttled", "; ".join(slow)
    if probe.memory_kib:
        speed = f", {probe.host_memory}" if probe.host_memory else ""
        yield "host memory", f"{probe.memory_kib / 2**20:.1f} GiB{speed}"
    yield "system", probe.os_name or probe.os
    yield "kernel", probe.kernel


def _versions(probe: Probe, plans: Sequence[Plan]) -> Iterator[Version]:
    for plan in plans[:1]:
        if plan.rig.gpus or probe.nvidia.loaded:
            driver = managed_driver(plan, probe)
            yield Version("driver", probe.nvidia.loaded, driver.version if driver else "")
        yield Version("system", probe.os, plan.rig.os or "")
    pinned = {name: pin for p in plans if p.build for name, pin in p.build.pinned_runtime_packages.items()}
    for name, pin in pinned.items():
        there = probe.nvidia.packages.get(name, "")
        yield Version(name, pin if there.rpartition("-")[0] == pin else there, pin)
    for plan in plans:
        release = probe.releases.get(plan.service.name) or {}
        what = f"{plan.service.name}: " if len(plans) > 1 else ""
        if plan.build:
            yield Version(
                f"{what}build", str(release.get("build") or ""), name_of(plan.build, probe.architecture, probe.os)
            )
        for member in plan.members or (plan,):
            name = f"{member.service.name}: " if plan.members else what
            if member.checkpoint:
                runs = (release.get("members") or {}).get(member.service.name, release).get("checkpoint") or {}
                current = _checkpoint(runs.get("repo"), runs.get("quant"), runs.get("revision"))
                wanted = _checkpoint(member.checkpoint.repo, member.checkpoint.quant, member.checkpoint.revision)
                yield Version(f"{name}checkpoint", current, wanted)


def _checkpoint(repo: Any, quant: Any, revision: Any) -> str:
    parts = (repo, quant, f"at {str(revision)[:12]}" if revision else "")
    return " ".join(str(part) for part in parts if part)


def _service_facts(plan: Plan, row: Row) -> Iterator[tuple[str, str]]:
    release = row.get("release")
    unit = f"{row.get('unit') or 'unknown'}{f', release {release}' if release else ''}"
    yield "unit", unit
    if row.get("up_seconds") is not None:
        yield "up", uptime_text(row["up_seconds"])
    if row.get("restarts"):
        yield "restarts", str(row["restarts"])
    if members := row.get("members"):
        loaded = ", ".join(one["model"] for one in members if one["loaded"]) or "none"
        yield "takes turns", f"{', '.join(one['service'] for one in members)}; loaded: {loaded}"
    if plan.context:
        yield "context", f"{plan.context:,} tokens"
    if plan.kv_tokens:
        yield "KV cache", f"{plan.kv_tokens:,} tokens, {plan.kv_cache_type}"
    if speed := plan.decode_tokens_per_second:
        yield "estimate", f"{speed.low:,.0f} to {speed.high:,.0f} tokens/s for one request"
    for part, names in (row.get("kernels") or {}).items():
        yield f"{part} kernels", ", ".join(names)
    if row.get("moe_config"):
        yield "tuned kernels", str(row["moe_config"])


def memory_of(plan: Plan, row: Row) -> tuple[GpuUse, ...]:
    """The planned and measured memory of each GPU of a service.

    Uses the row's own `memory` if present; otherwise the memory in use on each card of the service.
    """
    names = {index: gpu.name for index, gpu in enumerate(plan.rig.gpus)}
    planned = [gpu.model_dump() for gpu in plan.memory]
    return uses_of(planned, names, row.get("gpus") or (), row.get("memory") or ())


def _releases(kept: tuple[RetainedRelease, ...]) -> tuple[ReleaseItem, ...]:
    found = [
        ReleaseItem(
            release.number,
            time_text(release.made),
            release.current,
            release.answered,
            changes_between(older, release) if older else tuple(filter(None, (release.damage,))),
        )
        for older, release in with_replaced(kept)
    ]
    return tuple(reversed(found))


def _differences(drift: Iterable[Drift], service: str) -> tuple[DriftItem, ...]:
    return tuple(DriftItem(one.what, one.message, one.hint) for one in drift if one.service == service)


def _without_requests(result: dict[str, Any]) -> dict[str, Any]:
    """A result without its single requests, which are many and not drawn."""
    return {**result, "levels": [{**level, "each": []} for level in result["levels"]]}
