"""A run that puts earlier releases back. It needs no plan: what a release was made from lies with it on the host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from rigup.errors import Refused
from rigup.fleet.lease import myself
from rigup.fleet.records import Recorder
from rigup.fleet.result import Change
from rigup.fleet.runner import Run
from rigup.operations import jobs
from rigup.operations.kept_releases import KeptRelease, differences, read_kept
from rigup.operations.rollback import check_there, choose, roll_back
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
        self._each(lambda host: self._choose(host, service, to))

    def go_back(self) -> None:
        """Puts it back, and has each service answer."""
        self.recorder = Recorder(self.project, myself().who, "rollback")
        self._each(self._go_back)

    def _read(self, host: Any) -> None:
        self.kept[host.name] = read_kept(host)

    def _choose(self, host: Any, service: str | None, to: int | None) -> None:
        kept = self.kept[host.name]
        if not kept or (service is not None and service not in kept):
            has = f"it has {', '.join(kept)}" if kept else "nothing was ever applied there"
            what = f"there is no service {service}" if service and kept else "there are no releases"
            raise Refused(f"{host.name}: {what}", has)
        if service is None and to is not None and len(kept) > 1:
            raise Refused(f"{host.name}: --to is of one service", f"add --service: {', '.join(kept)}")
        steps = [Step(*choose(host.name, kept[name], to)) for name in kept if service in (None, name)]
        for step in steps:
            check_there(host, step.wanted)
        self.steps[host.name] = tuple(steps)
        self.results[host.name].changes = [Change("service", step.name) for step in steps]
        self.results[host.name].state = "differs"

    def _go_back(self, host: Any) -> None:
        result = self.results[host.name]
        result.changes = []
        for step in self.steps[host.name]:
            if jobs.cancelled():
                raise jobs.Cancelled(f"{host.name}: cancelled before {step.name}")
            back, again = (self._check(release) for release in (step.wanted, step.current or step.wanted))
            roll_back(host, step.wanted, step.current, back, again)
            result.changes.append(Change("service", step.name))
            result.answers.append(host.connector_data["rigup_answers"][step.wanted.service])
        result.state = "changed"

    def _check(self, release: KeptRelease) -> Any:
        return partial(ask_release, service=release.service, command=release.manifest.get("command") or ())
