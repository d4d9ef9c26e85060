"""Takes away what no kept release and no plan needs of a host: builds, unfinished work, caches; weights if asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rigup.programs
from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.probe import Probe
from rigup.fleet.lease import OURS
from rigup.fleet.result import Change
from rigup.fleet.runner import Run
from rigup.operations import jobs, remote
from rigup.operations.builds import name_of
from rigup.operations.moe_configs import unnamed_folders
from rigup.operations.progress import Progress, report
from rigup.plan import Finding, Plan
from rigup.units import bytes_text

LIST_SECONDS = 300
REMOVE_SECONDS = 900
SERVICES = f"{layout.CONFIGURATION}/services"


@dataclass(frozen=True)
class Removal:
    """One thing that goes. what: in words. image: a container image that goes with it, "" for none."""

    what: str
    path: str
    bytes: int
    image: str = ""

    @property
    def text(self) -> str:
        """As it is shown: what, and how much room it takes."""
        return f"{self.what}, {bytes_text(self.bytes)}"


def removals(found: dict[str, Any], builds: Iterable[str], weights: Iterable[str] | None) -> tuple[Removal, ...]:
    """What can go of what `leftovers.py` found on a host.

    builds: names that the plans of the host need, released or not yet. weights: the same of folders; None leaves all.
    """
    return (*_builds(found, set(builds)), *_unfinished(found), *_weights(found, weights))


def _builds(found: dict[str, Any], planned: set[str]) -> Iterator[Removal]:
    needed = planned | set(found["needed_builds"]) | set(found["running"])
    for name, build in sorted(found["builds"].items()):
        if name not in needed:
            yield Removal(f"build {name}", f"{layout.BUILDS}/{name}", build["bytes"], build["image"])


def _unfinished(found: dict[str, Any]) -> Iterator[Removal]:
    """What a job that is at work is making, or takes its packages from, stays."""
    if any(unit.startswith("rigup-build-") for unit in found["jobs"]):
        return
    for path, size in sorted(found["unfinished"].items()):
        yield Removal(f"unfinished {path.rpartition('/')[2]}", path, size)
    if found["packages"]:
        yield Removal("Python packages kept for the next build", layout.PACKAGES, found["packages"])


def _weights(found: dict[str, Any], planned: Iterable[str] | None) -> Iterator[Removal]:
    if planned is None:
        return
    needed = set(planned) | set(found["needed_weights"])
    stopped = not any(unit.startswith("rigup-weights-") for unit in found["jobs"])
    for folder, size in sorted((found["weights"] | (found["incoming"] if stopped else {})).items()):
        if folder.removesuffix(".incoming") not in needed:
            yield Removal(f"weights {folder.removeprefix(f'{layout.WEIGHTS}/')}", folder, size)


class Pruning(Run):
    """A run that takes away. found: by host, what can go, once `look` was called. weights: whether checkpoints can."""

    found: dict[str, tuple[Removal, ...]]
    weights = False

    def look(self, weights: bool) -> None:
        """Connects, takes the lease and finds out what can go. weights: those of no release and no plan as well."""
        self.found, self.weights = {}, weights
        self.connect(take_lease=True)
        self._each(self._look)

    def remove(self) -> None:
        """Takes it away."""
        self._each(self._remove)

    def _against(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """Nothing: a disk that is full is what this is for."""
        return ()

    def _look(self, host: Any) -> None:
        result = self.results[host.name]
        self.found[host.name] = self._removals(host)
        result.changes = [Change("prune", removal.text) for removal in self.found[host.name]]
        result.state = "differs" if result.changes else "unchanged"

    def _removals(self, host: Any) -> tuple[Removal, ...]:
        plans, probe = self.plans[host.name], self.results[host.name].probe
        assert probe is not None
        names = [name_of(plan.build, probe.architecture, probe.os) for plan in plans if plan.build]
        folders = [folder for plan in plans if (folder := _folder(plan))]
        kernels = unnamed_folders(host, [plan.moe_folder.path for plan in plans if plan.moe_folder])
        unused = (Removal(f"tuned kernels {path.rpartition('/')[2]}", path, size) for path, size in kernels.items())
        return (*removals(_list(host), names, folders if self.weights else None), *unused)

    def _remove(self, host: Any) -> None:
        """Of what was shown, all that still can go: somebody else may have had the host while it waited."""
        result, lease = self.results[host.name], self.leases[host.name]
        result.changes = []
        if self._claim(host) != OURS:
            still = {removal.path for removal in self._removals(host)}
            self.found[host.name] = tuple(one for one in self.found[host.name] if one.path in still)
        for removal in self.found[host.name]:
            if jobs.cancelled():
                raise jobs.Cancelled(f"{host.name}: cancelled before {removal.what}")
            lease.check()
            report(Progress(host.name, "prune", text=f"removing {removal.text}"))
            _take_away(host, removal)
            result.changes.append(Change("prune", removal.text))
        result.state = "changed" if result.changes else "unchanged"


def _folder(plan: Plan) -> str | None:
    checkpoint = plan.checkpoint
    return layout.weights_folder(checkpoint.repo, checkpoint.revision) if checkpoint and checkpoint.revision else None


def _list(host: Any) -> dict[str, Any]:
    program = (Path(rigup.programs.__file__).parent / "leftovers.py").read_text()
    words = ("python3", "-", layout.BUILDS, layout.WEIGHTS, SERVICES, layout.PACKAGES)
    if not remote.ask(host, "sh", "-c", "command -v python3").ok:
        return {"builds": {}, "unfinished": {}, "packages": 0, "weights": {}, "incoming": {}} | dict.fromkeys(
            ("needed_builds", "needed_weights", "running", "jobs"), ()
        )
    output = remote.ask(host, *words, stdin=program, timeout=LIST_SECONDS)
    if not output.ok:
        raise HostFailed(
            f"{host.name}: what is needed there cannot be told: {output.last_line}", "nothing was removed; look at "
            f"{SERVICES}/*/releases/*/release.json"
        )  # fmt: skip
    found: dict[str, Any] = json.loads(output.stdout)
    return found


def _take_away(host: Any, removal: Removal) -> None:
    """Renamed first, so that a build or a checkpoint is never half there under its name."""
    folder, _, name = removal.path.rpartition("/")
    gone = f"{folder}/.removed-{name.lstrip('.')}"
    remote.script(host, 'rm -rf "$2"; mv -T "$1" "$2"; rm -rf "$2"', removal.path, gone, timeout=REMOVE_SECONDS)
    if removal.image:
        remote.ask(host, "podman", "image", "rm", removal.image, timeout=REMOVE_SECONDS)
