"""A run that rolls services back to earlier releases. It needs no plan: each release on a host has its manifest.

The hosts of a node group, as their releases name it, roll back together to releases with the same group digest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rigup.errors import Refused
from rigup.facts.manifest import checkpoints_of
from rigup.host import Host, state_of
from rigup.layout import CONFIGURATION, weights_folder
from rigup.operations.multinode.releases import GroupMember
from rigup.operations.primitives import jobs
from rigup.operations.service.answer import Answer, Answers
from rigup.operations.service.health import ask_release
from rigup.operations.service.history import RetainedRelease, differences, group_digest_of, hosts_of, newest, read_kept
from rigup.operations.service.rollback import check_there, choose, roll_back
from rigup.operations.weights.host_files import changed_files
from rigup.run.gateways.drains import GatewayDrains
from rigup.run.hosts_run import HostsRun
from rigup.run.multinode.groups import NodeGroups
from rigup.run.result import TAKES_PART, Change
from rigup.run.services.startable import check_startable
from rigup.systemd.release import GROUP_KEY
from rigup.units import list_text


@dataclass(frozen=True)
class ServiceRollback:
    """The rollback of one service on one host."""

    current: RetainedRelease | None
    wanted: RetainedRelease

    @property
    def name(self) -> str:
        """The description of the rollback."""
        was = f" (now {self.current.number})" if self.current else ""
        return f"release {self.wanted.number} of {self.wanted.service}{was}"

    @property
    def differences(self) -> tuple[str, ...]:
        """What the rollback changes."""
        return differences(self.current, self.wanted) if self.current else ()


class RollbackRun(HostsRun):
    """A run with the steps connect, `read` or `plan_rollback`, then `go_back`. kept, steps: by host."""

    kept: dict[str, dict[str, tuple[RetainedRelease, ...]]]
    steps: dict[str, tuple[ServiceRollback, ...]]

    def read(self) -> None:
        """Reads the retained releases of each host."""
        self.kept = {name: {} for name in self.results}
        self.steps = {name: () for name in self.results}
        self.context.each(self._read)

    def plan_rollback(self, service: str | None, to: int | None) -> None:
        """Finds out what would be rolled back; a host that cannot roll back takes no further part."""
        self.read()
        self._find_groups()
        self.context.each(lambda host: self._choose(host, service, to))
        if self.coordinator:
            self.coordinator.spread()
        self.steps = {
            name: steps if self.results[name].state == "differs" else () for name, steps in self.steps.items()
        }

    def go_back(self, drains: GatewayDrains | None = None) -> None:
        """Rolls back and checks that each service answers; host by host where gateways send them requests.

        drains: takes hosts out of gateways while they change.
        """
        self.record("rollback")
        if drains is None:
            self.context.each(self._go_back)
            return
        names = [name for name, result in self.results.items() if result.state in TAKES_PART]
        for unit in self.context.groups.units(names):
            drains.carry_out(unit, partial(self.context.each, self._go_back, unit))

    def _read(self, host: Host) -> None:
        self.kept[host.name] = read_kept(host)

    def _find_groups(self) -> None:
        """Finds the node groups in the newest releases, without those with hosts outside of the inventory."""
        groups = {hosts_of(newest(kept).manifest): None for of in self.kept.values() for kept in of.values()}
        found = [hosts for hosts in groups if hosts and all(name in self.results for name in hosts)]
        self.context.groups = NodeGroups(found)

    def _choose(self, host: Host, service: str | None, to: int | None) -> None:
        kept = self.kept[host.name]
        if not kept and service is None and host.data.get("gateway") is not None:
            self.results[host.name].state = "unchanged"
            return
        if not kept or (service is not None and service not in kept):
            has = f"choose from: {', '.join(kept)}" if kept else "run rigup apply first"
            what = f"there is no service {service}" if service and kept else "there are no releases"
            raise Refused(f"{host.name}: {what}", has)
        if service is None and to is not None and len(kept) > 1:
            raise Refused(f"{host.name}: --to needs one service", f"add --service: {', '.join(kept)}")
        probe = self.results[host.name].probe
        if probe and (disk := probe.disk(CONFIGURATION)) and not disk.writable:
            raise Refused(f"{host.name}: {disk.folder} is not writable", "check whether it is mounted read-only")
        steps = [self._step(host.name, kept[name], to) for name in kept if service in (None, name)]
        for step in steps:
            check_there(host, step.wanted)
            _check_unchanged(host, step.wanted)
            if probe:
                check_startable(host.name, probe, step.wanted.service, step.wanted.manifest)
        self.steps[host.name] = tuple(steps)
        self.results[host.name].changes = [Change("service", step.name) for step in steps]
        self.results[host.name].state = "differs"

    def _step(self, name: str, kept: tuple[RetainedRelease, ...], to: int | None) -> ServiceRollback:
        """A worker goes back to the release with the same group digest as the head's; `to` is the head's number."""
        hosts, service = hosts_of(newest(kept).manifest), kept[-1].service
        if absent := [other for other in hosts if other not in self.results]:
            message = (
                f"{name}: {service} spans {' and '.join(hosts)}, and {' and '.join(absent)} is not in this inventory"
            )
            raise Refused(message, "add it to the inventory: all hosts of a node group go back together")
        if not hosts or name == hosts[0]:
            return ServiceRollback(*choose(name, kept, to))
        of_head = self.kept[hosts[0]].get(service)
        if not of_head:
            raise Refused(
                f"{name}: {service}: its head {hosts[0]} has no release to go back to",
                "run rigup releases to list the releases of each host",
            )
        wanted = choose(hosts[0], of_head, to)[1]
        current = next((release for release in kept if release.current), None)
        for release in reversed(kept):
            if (
                release.answered
                and not release.current
                and group_digest_of(release.manifest) == group_digest_of(wanted.manifest)
            ):
                return ServiceRollback(current, release)
        raise Refused(
            f"{name}: {service}: no release matches release {wanted.number} of {hosts[0]}",
            "run rigup releases to list the releases of each host",
        )

    def _go_back(self, host: Host) -> None:
        result, lease = self.results[host.name], self.context.leases[host.name]
        result.changes = []
        self._claim_unchanged(host)
        for step in self.steps[host.name]:
            if jobs.cancelled():
                raise jobs.Cancelled(f"{host.name}: cancelled before {step.name}")
            lease.check()
            if group_digest_of(step.wanted.manifest) and host.name in self.context.groups.of:
                self._go_back_together(host, step)
            else:
                back, again = (self._check(release) for release in (step.wanted, step.current or step.wanted))
                roll_back(host, step.wanted, step.current, back, again)
            result.changes.append(Change("service", step.name))
            answers = state_of(host, Answers).by_service
            result.answers += [answers[step.wanted.service]] if step.wanted.service in answers else []
        result.state = "changed"

    def _go_back_together(self, host: Host, step: ServiceRollback) -> None:
        service, manifest = step.wanted.service, step.wanted.manifest
        hosts = hosts_of(manifest)
        addresses = {str(node["host"]): str(node["address"]) for node in manifest[GROUP_KEY]["nodes"][1:]}
        again = partial(ask_release, service=service)
        barrier = self.context.groups.of[host.name].changing
        part = GroupMember(service, barrier, hosts, hosts.index(host.name), addresses, None, again)
        check = partial(self._check(step.wanted), given_up=part.given_up)
        part.change(host, str(step.wanted.number), check, f"rolling {service} back to release {step.wanted.number}")

    def _check(self, release: RetainedRelease) -> partial[Answer]:
        return partial(ask_release, manifest=release.manifest, service=release.service)


def _check_unchanged(host: Host, release: RetainedRelease) -> None:
    """Raises Refused if files that lie on the host have changed since the release was made: rigup has no copy."""
    for checkpoint in checkpoints_of(release.manifest):
        if not (place := checkpoint.get("place")):
            continue
        folder = weights_folder(checkpoint["repo"], checkpoint["revision"])
        if changed := changed_files(host, folder, place):
            raise Refused(
                f"{host.name}: {release.service}: release {release.number} cannot run: not as it was hashed then: "
                f"{list_text(changed, 1)}",
                "restore the earlier files, inventory and lock and run rigup apply, which hashes them again",
            )
