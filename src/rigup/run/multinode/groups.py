"""The node groups of a run: which hosts serve together, and the barriers at which they wait for one another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rigup.host import Host
from rigup.plan import Plan
from rigup.run.result import TAKES_PART, HostResult


class NodeGroup:
    """Hosts that serve together, by rank: the head, then the workers.

    changing, checking: the barriers for changes and for health checks.
    """

    def __init__(self, hosts: tuple[str, ...]) -> None:
        from rigup.operations.multinode.barrier import Barrier  # few runs have any group

        self.hosts, self.changing, self.checking = hosts, Barrier(hosts), Barrier(hosts)

    def begin(self, gone: Mapping[str, str]) -> None:
        """Starts a new phase of the run. gone: hosts that do not take part in it, with the reason."""
        self.changing.begin(gone)
        self.checking.begin(gone)

    def leave(self, host: str, why: str) -> None:
        """Marks a host as done with this phase, or as failed if there is a reason."""
        self.changing.leave(host, why)
        self.checking.leave(host, why)


class NodeGroups:
    """All node groups of a run. of: the group of each host that is in one. largest: hosts in the largest group."""

    def __init__(self, groups: Iterable[tuple[str, ...]] = ()) -> None:
        self.all = [NodeGroup(hosts) for hosts in groups]
        self.of = {host: group for group in self.all for host in group.hosts}
        self.largest = max((len(group.hosts) for group in self.all), default=0)

    def begin(self, results: Mapping[str, HostResult], hosts: list[Host]) -> list[Host]:
        """Starts a new phase with these hosts. Returns them with the hosts of each group next to each other.

        Otherwise the first hosts of many groups could fill the pool, each waiting for a host that cannot start.
        """
        names = {host.name for host in hosts}
        for group in self.all:
            group.begin({name: absence(results.get(name)) for name in group.hosts if name not in names})
        place = {host.name: index for index, host in enumerate(hosts)}
        first = {host: min(place.get(name, len(place)) for name in group.hosts) for host, group in self.of.items()}
        return sorted(hosts, key=lambda host: (first.get(host.name, place[host.name]), place[host.name]))

    def leave(self, name: str, result: HostResult) -> None:
        """Marks a host as done with a phase."""
        if name in self.of:
            self.of[name].leave(name, absence(result))

    def units(self, names: Collection[str]) -> list[list[str]]:
        """These hosts in order, with those of one group together."""
        units: dict[str, list[str]] = {}
        for name in names:
            units.setdefault(self.of[name].hosts[0] if name in self.of else name, []).append(name)
        return list(units.values())


def node_groups_in(plans: Mapping[str, Sequence[Plan]]) -> list[tuple[str, ...]]:
    """The hosts of each multi-host service, by rank."""
    return list(dict.fromkeys(tuple(n.host for n in plan.nodes) for of in plans.values() for plan in of if plan.nodes))


def absence(result: HostResult | None) -> str:
    """Why a host no longer takes part; "" if nothing is wrong with it."""
    if result is None or result.state in (*TAKES_PART, "unchanged", "changed"):
        return ""
    return "; ".join(error.message for error in result.errors) or f"{result.host}: {result.state}"
