"""Several services on one rig: whether the plans that were made one by one can be on it at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rigup.plan import Finding, Plan
from rigup.planner.memory_host import system_mib, total_of

_SOURCE = "docs/inventory.md"


def together(plans: tuple[Plan, ...]) -> tuple[Plan, ...]:
    """The plans, those refused that ask for what an earlier one has: its GPUs, or more host memory than is left.

    Two services never share a GPU, even where their memory would fit: each is planned with the whole of its cards.
    """
    kept: list[Plan] = []
    made: list[Plan] = []
    for plan in plans:
        findings = tuple(_findings(kept, plan)) if plan.verdict == "ok" else ()
        made.append(_refused(plan, findings) if findings else plan)
        if made[-1].verdict == "ok":
            kept.append(plan)
    return tuple(made)


def refused_together(by_host: tuple[tuple[Plan, ...], ...]) -> tuple[tuple[Plan, ...], ...]:
    """The plans of hosts that serve together, by host: a service that one of them refuses is refused on all."""
    services = tuple(zip(*by_host, strict=True))
    whole = [tuple(dict.fromkeys(found for plan in plans for found in plan.refusals)) for plans in services]
    kept = [
        tuple(_refused(plan, findings) if findings and plan.verdict == "ok" else plan for plan in plans)
        for plans, findings in zip(services, whole, strict=True)
    ]
    return tuple(zip(*kept, strict=True))


def gpus_of(plan: Plan) -> tuple[int | str, ...]:
    """The GPUs that a plan uses: UUIDs where the service names those, else indices."""
    uuids = tuple(gpu for gpu in plan.service.gpus or () if isinstance(gpu, str))
    return tuple(uuids[memory.gpu] if uuids else memory.gpu for memory in plan.memory)


def _refused(plan: Plan, findings: tuple[Finding, ...]) -> Plan:
    return Plan(
        host=plan.host, group=plan.group, verdict="refused", rig=plan.rig, service=plan.service, refusals=findings
    )


def _findings(others: Iterable[Plan], plan: Plan) -> Iterator[Finding]:
    name, mine = plan.service.name, gpus_of(plan)
    taken = 0
    for other in others:
        theirs = gpus_of(other)
        taken += len(theirs)
        if shared := [gpu for gpu in mine if gpu in theirs]:
            yield Finding(
                rule="gpu-shared",
                message=f"services {other.service.name} and {name} both use {_named(shared)}",
                hint=f"give each GPUs of its own: services.{other.service.name}.gpus and services.{name}.gpus",
                source=_SOURCE,
            )
            return
    if len(mine) + taken > len(plan.rig.gpus):
        yield Finding(
            rule="gpu-count",
            message=f"{name} needs {len(mine)} GPUs and {len(plan.rig.gpus) - taken} of {len(plan.rig.gpus)} are left",
            hint=f"give it fewer GPUs, or another rig: services.{name}.gpus",
            source=_SOURCE,
        )
    yield from _host_memory(others, plan)


def _named(gpus: list[int | str]) -> str:
    return f"GPU{'s' if len(gpus) > 1 else ''} {', '.join(str(gpu) for gpu in gpus)}"


def _host_memory(others: Iterable[Plan], plan: Plan) -> Iterator[Finding]:
    total, needed = total_of(plan.rig), plan.host_memory_mib or 0
    before = {other.service.name: other.host_memory_mib or 0 for other in others}
    if total is None or not before:
        return
    declared = plan.rig.host_memory_gib
    whose = (
        f"the rig's {declared:g} GiB"
        if declared
        else f"the {total:,} MiB that a rig is taken to have which does not say"
    )
    left = total - system_mib(total) - sum(before.values())
    if needed > left:
        yield Finding(
            rule="host-memory",
            message=f"{plan.service.name} needs {needed:,} MiB of host memory; of {whose}"
            f" {', '.join(before)} leave{'s' if len(before) == 1 else ''} {max(0, left):,} MiB",
            hint="take a smaller model or context for one of them, or declare more: rig.host_memory_gib",
            source=_SOURCE,
        )
