"""A run that puts earlier releases back. It needs no plan: what a release was made from lies with it on the host.

Hosts that serve together, by their releases, go back together, to releases that are parts of one whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from rigup.errors import Refused
from rigup.facts.probe import Probe
from rigup.fleet.lease import NOBODYS, OURS, myself
from rigup.fleet.records import Recorder
from rigup.fleet.result import Change
from rigup.fleet.runner import Run
from rigup.layout import CONFIGURATION
from rigup.operations import jobs
from rigup.operations.kept_releases import KeptRelease, differences, hosts_of, read_kept, whole_of
from rigup.operations.releases import SET_KEY
from rigup.operations.rollback import check_there, choose, roll_back
from rigup.plan import Finding
from rigup.verify.generation import ask_release


@dataclass(frozen=True)
class Step:
    """One service's way back."""

    current: KeptRelease | None
    wanted: KeptRelease

    @property
    def name(self) -> str:
        """For people."""
        was = f" (now {self.current.number})" if self.current else ""
        return f"release {self.wanted.number} of {self.wanted.service}{was}"

    @property
    def differences(self) -> tuple[str, ...]:
        """What going back changes."""
        return differences(self.current, self.wanted) if self.current else ()


class RollingBack(Run):
    """As a run: connect, `read` or `foresee`, then `go_back`. kept, steps: by host."""

    kept: dict[str, dict[str, tuple[KeptRelease, ...]]]
    steps: dict[str, tuple[Step, ...]]

    def read(self) -> None:
        """Finds out which releases there are."""
        self.kept = {name: {} for name in self.results}
        self.steps = {name: () for name in self.results}
        self._each(self._read)

    def foresee(self, service: str | None, to: int | None) -> None:
        """Finds out what would be put back; a host where that cannot be takes no further part."""
        self.read()
        self._find_sets()
        self._each(lambda host: self._choose(host, service, to))
        if self.sets:
            self.sets.spread(self)
        self.steps = {
            name: steps if self.results[name].state == "differs" else () for name, steps in self.steps.items()
        }

    def go_back(self) -> None:
        """Puts it back, and has each service answer."""
        self.leaving.recorder = Recorder(self.project, myself().who, "rollback")
        self._each(self._go_back)

    def _against(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """Nothing: neither a host's clock nor its room matters to what lies there already."""
        return ()

    def _read(self, host: Any) -> None:
        self.kept[host.name] = read_kept(host)

    def _find_sets(self) -> None:
        """By what the hosts' newest releases say; all of a set must be in the inventory."""
        sets = {hosts_of(kept[-1].manifest): None for of in self.kept.values() for kept in of.values()}
        if found := [hosts for hosts in sets if hosts and all(name in self.results for name in hosts)]:
            from rigup.fleet.spanning import Sets

            self.sets = Sets(found, {})

    def _choose(self, host: Any, service: str | None, to: int | None) -> None:
        kept = self.kept[host.name]
        if not kept or (service is not None and service not in kept):
            has = f"it has {', '.join(kept)}" if kept else "nothing was ever applied there"
            what = f"there is no service {service}" if service and kept else "there are no releases"
            raise Refused(f"{host.name}: {what}", has)
        if service is None and to is not None and len(kept) > 1:
            raise Refused(f"{host.name}: --to is of one service", f"add --service: {', '.join(kept)}")
        probe = self.results[host.name].probe
        if probe and (disk := probe.disk(CONFIGURATION)) and not disk.writable:
            raise Refused(f"{host.name}: {disk.folder} cannot be written to", "is it mounted read-only?")
        steps = [self._step(host.name, kept[name], to) for name in kept if service in (None, name)]
        for step in steps:
            check_there(host, step.wanted)
        self.steps[host.name] = tuple(steps)
        self.results[host.name].changes = [Change("service", step.name) for step in steps]
        self.results[host.name].state = "differs"

    def _step(self, name: str, kept: tuple[KeptRelease, ...], to: int | None) -> Step:
        """A host of several takes what belongs together with what its head goes back to; `to` is the head's number."""
        hosts, service = hosts_of(kept[-1].manifest), kept[-1].service
        if absent := [other for other in hosts if other not in self.results]:
            said = f"{name}: {service} spans {' and '.join(hosts)}, and {' and '.join(absent)} is not in this inventory"
            raise Refused(said, "all of them go back, or none")
        if not hosts or name == hosts[0]:
            return Step(*choose(name, kept, to))
        of_head = self.kept[hosts[0]].get(service)
        if not of_head:
            raise Refused(f"{name}: {service}: its head {hosts[0]} cannot go back", "all of them go back, or none")
        wanted = choose(hosts[0], of_head, to)[1]
        current = next((release for release in kept if release.current), None)
        for release in reversed(kept):
            if release.answered and not release.current and whole_of(release.manifest) == whole_of(wanted.manifest):
                return Step(current, release)
        raise Refused(
            f"{name}: {service}: no release belongs together with release {wanted.number} of {hosts[0]}",
            "rigup releases tells which there are",
        )

    def _go_back(self, host: Any) -> None:
        result, lease = self.results[host.name], self.leases[host.name]
        result.changes = []
        if self._claim(host) not in (OURS, NOBODYS):
            raise self._was_here(host)
        for step in self.steps[host.name]:
            if jobs.cancelled():
                raise jobs.Cancelled(f"{host.name}: cancelled before {step.name}")
            lease.check()
            if whole_of(step.wanted.manifest) and self.sets:
                self._go_back_together(host, step)
            else:
                back, again = (self._check(release) for release in (step.wanted, step.current or step.wanted))
                roll_back(host, step.wanted, step.current, back, again)
            result.changes.append(Change("service", step.name))
            answers = host.connector_data.get("rigup_answers", {})
            result.answers += [answers[step.wanted.service]] if step.wanted.service in answers else []
        result.state = "changed"

    def _go_back_together(self, host: Any, step: Step) -> None:
        from rigup.fleet.spanning import ask_again
        from rigup.operations.set_releases import SetPart

        assert self.sets is not None
        service, manifest = step.wanted.service, step.wanted.manifest
        hosts = hosts_of(manifest)
        addresses = {str(node["host"]): str(node["address"]) for node in manifest[SET_KEY]["nodes"][1:]}
        again = partial(ask_again, service=service)
        rendezvous = self.sets.of[host.name].changing
        part = SetPart(service, rendezvous, hosts, hosts.index(host.name), addresses, None, again)
        check = partial(self._check(step.wanted), given_up=part.given_up)
        part.change(host, str(step.wanted.number), check, f"putting release {step.wanted.number} of {service} back")

    def _check(self, release: KeptRelease) -> Any:
        return partial(ask_release, service=release.service, command=release.manifest.get("command") or ())
