"""Several services on one rig: whether they fit together, although each was decided alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rigup.plan import Finding
from rigup.planner.decision import Decision
from rigup.planner.memory.host import system_mib, total_of

_SOURCE = "docs/inventory.md"


class Occupied:
    """What the services of a rig take, as they are decided one after the other.

    Two services never share a GPU, even if their memory would fit, because each is planned with whole cards. Those that
    take turns (`swap`) share them, and only one of them is there at a time: the one that needs the most is counted.
    """

    def __init__(self) -> None:
        self._beside: list[Decision] = []
        self._largest: Decision | None = None
        self._by_gpus: dict[frozenset[int | str], Decision] = {}
        self._by_name: dict[str, Decision] = {}

    def add(self, decision: Decision) -> None:
        """Takes in a service without conflicts."""
        if not decision.candidate.service.swap:
            self._beside.append(decision)
            return
        self._by_gpus.setdefault(frozenset(_gpus(decision, 0)), decision)
        self._by_name.setdefault(decision.candidate.served_name, decision)
        if self._largest is None or _on_first_host(decision) > _on_first_host(self._largest):
            self._beside = [each for each in self._beside if each is not self._largest] + [decision]
            self._largest = decision

    def conflicts(self, decision: Decision) -> tuple[Finding, ...]:
        """Why a service cannot run beside those: they use its GPUs, or too much of the host's memory."""
        beside = self._beside
        if decision.candidate.service.swap:
            if findings := tuple(self._in_turn(decision)):
                return findings
            beside = [each for each in beside if each is not self._largest]
        found = (_on_host(beside, decision, rank) for rank in range(decision.candidate.hosts))
        return tuple(dict.fromkeys(finding for findings in found for finding in findings))

    def _in_turn(self, decision: Decision) -> Iterator[Finding]:
        """Why a service cannot take turns with the earlier ones of its group; of those with the same GPUs the first."""
        name, mine = decision.candidate.service.name, {*_gpus(decision, 0)}
        for used, other in self._by_gpus.items():
            theirs = other.candidate.service.name
            if not (mine <= used or used <= mine):
                yield Finding(
                    rule="swap-gpus",
                    message=f"{name} and {theirs} take turns, but not on the same cards: {_named([*mine])}; "
                    f"{_named([*used])}",
                    hint=f"name the same in both: services.{theirs}.gpus and services.{name}.gpus",
                    source=_SOURCE,
                )
        if same := self._by_name.get(called := decision.candidate.served_name):
            yield Finding(
                rule="swap-name",
                message=f"{name} and {same.candidate.service.name} take turns, but both are called {called}, "
                "so requests cannot choose between them",
                hint=f"set another services.{name}.served_name",
                source=_SOURCE,
            )


def _on_first_host(decision: Decision) -> int:
    return decision.candidate.host_memory_of(0)


def _gpus(decision: Decision, rank: int) -> tuple[int | str, ...]:
    """The GPUs used on the host of a rank: UUIDs if the service names them, otherwise indices."""
    uuids = tuple(gpu for gpu in decision.candidate.service.gpus or () if isinstance(gpu, str))
    return tuple(uuids[row.gpu] if uuids else row.gpu for row in decision.candidate.memory_of(rank))


def _on_host(earlier: Sequence[Decision], decision: Decision, rank: int) -> Iterator[Finding]:
    name, there, mine = decision.candidate.service.name, len(decision.candidate.rig.gpus), _gpus(decision, rank)
    taken = 0
    for other in earlier:
        other_name, theirs = other.candidate.service.name, _gpus(other, rank)
        taken += len(theirs)
        if shared := [gpu for gpu in mine if gpu in theirs]:
            yield Finding(
                rule="gpu-shared",
                message=f"services {other_name} and {name} both use {_named(shared)}",
                hint=f"give each service its own GPUs: services.{other_name}.gpus and services.{name}.gpus",
                source=_SOURCE,
            )
            return
    if len(mine) + taken > there:
        yield Finding(
            rule="gpu-count",
            message=f"{name} needs {len(mine)} GPUs, but only {there - taken} of {there} are left",
            hint=f"give it fewer GPUs (services.{name}.gpus) or another rig",
            source=_SOURCE,
        )
    yield from _host_memory(earlier, decision, rank)


def _named(gpus: list[int | str]) -> str:
    return f"GPU{'s' if len(gpus) > 1 else ''} {', '.join(str(gpu) for gpu in gpus)}"


def _host_memory(earlier: Sequence[Decision], decision: Decision, rank: int) -> Iterator[Finding]:
    rig = decision.candidate.rig
    total, needed = total_of(rig), decision.candidate.host_memory_of(rank)
    before = {other.candidate.service.name: other.candidate.host_memory_of(rank) for other in earlier}
    if total is None or not before:
        return
    declared = rig.host_memory_gib
    whose = f"the rig's {declared:g} GiB" if declared else f"the {total:,} MiB that rigup assumes"
    left = total - system_mib(total) - sum(before.values())
    if needed > left:
        yield Finding(
            rule="host-memory",
            message=f"{decision.candidate.service.name} needs {needed:,} MiB of host memory, but "
            f"{' and '.join(before)} leave{'s' if len(before) == 1 else ''} only {max(0, left):,} MiB of {whose}",
            hint="use a smaller model or context for one of them, or declare more memory: rig.host_memory_gib",
            source=_SOURCE,
        )
