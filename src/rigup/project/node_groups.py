"""Which hosts serve together: a group's, in the inventory's order, cut into as many as one service spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rigup.errors import InputError
from rigup.plan import Finding
from rigup.project.inventory import HostEntry, Project

_SOURCE = "docs/multi-node.md"
GroupHosts = tuple[HostEntry, ...]


def node_groups(hosts: Iterable[HostEntry]) -> list[GroupHosts]:
    """Every host in one node group, in order; the last one of an inventory's group may be too small.

    `group_finding` says so.

    A rig that cannot be read counts as one for hosts of their own: reading it says what is wrong.
    """
    found: list[GroupHosts] = []
    for members in hosts_by_group(hosts).values():
        size = hosts_per_service(members[0])
        found += [tuple(members[start : start + size]) for start in range(0, len(members), size)]
    return found


def hosts_by_group(hosts: Iterable[HostEntry]) -> dict[str, list[HostEntry]]:
    """The hosts of each group, in order."""
    groups: dict[str, list[HostEntry]] = {}
    for host in hosts:
        groups.setdefault(host.group, []).append(host)
    return groups


def hosts_per_service(host: HostEntry) -> int:
    """How many hosts a service of this one spans, as its rig says."""
    rig = host.data.get("rig")
    size = rig.get("hosts_per_service", 1) if isinstance(rig, dict) else 1
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 1


def group_finding(members: GroupHosts, group: Sequence[HostEntry]) -> Finding | None:
    """Why hosts cannot serve together: their group leaves hosts over, or they are not told the same. None where it can.

    group: all hosts of the group.
    """
    size = hosts_per_service(group[0])
    if left := [host.name for host in group[len(group) - len(group) % size :]]:
        return Finding(
            rule="hosts-per-service",
            message=f"{len(group)} hosts are not a multiple of hosts_per_service {size}: {_listed(left)} left over",
            hint="add hosts to the group, or move the remaining ones to a group of their own",
            source=_SOURCE,
        )
    first = members[0]
    for host in members[1:]:
        for key in ("rig", "services"):
            if host.data.get(key) != first.data.get(key):
                return Finding(
                    rule="unequal-hosts",
                    message=f"{first.name} and {host.name} serve together but have different {key}",
                    hint=f"give both the same {key}, or move {host.name} to another group",
                    source=_SOURCE,
                )
    return None


def check_whole_groups(project: Project) -> None:
    """Raises InputError where only some of the hosts of a service are to be worked on."""
    chosen = {host.name for host in project.hosts}
    for members in node_groups(project.everyone):
        names = [host.name for host in members]
        there = [name for name in names if name in chosen]
        if there and len(there) < len(names):
            raise InputError(
                f"--limit: {_listed(there)} one of the hosts of a service that spans {', '.join(names)}"
                if len(there) == 1
                else f"--limit: {', '.join(there)} are not all the hosts of a service that spans {', '.join(names)}",
                f"name all of them: --limit {','.join(names)}",
            )


def with_whole_groups(project: Project) -> Project:
    """The project with all hosts of each service of which it has some: what goes back goes back on all of them."""
    chosen = {host.name for host in project.hosts}
    wanted = {
        host.name for members in node_groups(project.everyone) for host in members if chosen & {m.name for m in members}
    }
    return project._replace(hosts=tuple(host for host in project.everyone if host.name in wanted))


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
