"""Removes from hosts what no retained release and no plan uses: builds, unfinished work, caches; weights on request."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import Field

from rigup import layout
from rigup.connection.lease import OURS
from rigup.errors import HostFailed
from rigup.facts.bounds import json_of
from rigup.facts.host_output import Count, HostOutput, Line, checked
from rigup.facts.probe import Probe
from rigup.host import Host
from rigup.operations.builds.source import name_of
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.service.moe_configs import unnamed_folders
from rigup.plan import Finding
from rigup.programs import program_file
from rigup.run.result import Change
from rigup.run.runner import Run
from rigup.units import bytes_text

LIST_SECONDS = 300
REMOVE_SECONDS = 900
SERVICES = f"{layout.CONFIGURATION}/services"


class LeftoverBuild(HostOutput):
    """A build: its size in bytes, and the container image that belongs to it, "" for none."""

    bytes: Count
    image: Line = ""


class Leftovers(HostOutput):
    """The output of `leftovers.py`, which describes the fields; sizes in bytes."""

    builds: dict[str, LeftoverBuild]
    unfinished: dict[str, Count]
    packages: Count
    service_caches: dict[Line, Count] = Field(alias="caches")
    weights: dict[str, Count]
    incoming: dict[str, Count]
    needed_builds: list[Line]
    needed_weights: list[Line]
    running: list[Line]
    jobs: list[Line]


def read_leftovers(text: str) -> Leftovers:
    """Reads the output of `leftovers.py`. Raises Unreadable for anything else."""
    document = "the list of leftovers"
    return checked(Leftovers, json_of(text, document), document)


@dataclass(frozen=True)
class Removal:
    """One thing to remove. what: its description. image: the container image that is removed with it, "" for none."""

    what: str
    path: str
    bytes: int
    image: str = ""

    @property
    def text(self) -> str:
        """The description and the size."""
        return f"{self.what}, {bytes_text(self.bytes)}"


def removals(found: Leftovers, builds: Iterable[str], weights: Iterable[str] | None) -> tuple[Removal, ...]:
    """The removable part of what was found on a host.

    builds: names that the host's plans need. weights: folders that they need; None to keep all weights.
    """
    needed = {*builds, *found.needed_builds, *found.running}
    return (*_builds(found, needed), *_caches(found, needed), *_unfinished(found), *_weights(found, weights))


def _builds(found: Leftovers, needed: set[str]) -> Iterator[Removal]:
    for name, build in sorted(found.builds.items()):
        if name not in needed:
            yield Removal(f"build {name}", f"{layout.BUILDS}/{name}", build.bytes, build.image)


def _caches(found: Leftovers, needed: set[str]) -> Iterator[Removal]:
    """What a service compiled with a build that goes, or went."""
    for path, size in sorted(found.service_caches.items()):
        service, name = path.split("/")[-2:]
        if name not in needed:
            yield Removal(f"cache of {service} with {name}", path, size)


def _unfinished(found: Leftovers) -> Iterator[Removal]:
    """Unfinished builds and their packages, unless a build job is running."""
    if any(unit.startswith("rigup-build-") for unit in found.jobs):
        return
    for path, size in sorted(found.unfinished.items()):
        yield Removal(f"unfinished {path.rpartition('/')[2]}", path, size)
    if found.packages:
        yield Removal("Python packages kept for the next build", layout.PACKAGES, found.packages)


def _weights(found: Leftovers, planned: Iterable[str] | None) -> Iterator[Removal]:
    if planned is None:
        return
    needed = {*planned, *found.needed_weights}
    stopped = not any(unit.startswith("rigup-weights-") for unit in found.jobs)
    for folder, size in sorted((found.weights | (found.incoming if stopped else {})).items()):
        if folder.removesuffix(".incoming") not in needed:
            yield Removal(f"weights {folder.removeprefix(f'{layout.WEIGHTS}/')}", folder, size)


class PruneRun(Run):
    """A run that removes. found: by host, after `find_removals`. weights: whether to remove checkpoints."""

    found: dict[str, tuple[Removal, ...]]
    weights = False

    def find_removals(self, weights: bool) -> None:
        """Connects, takes the leases and finds out what can be removed. weights: whether to include checkpoints."""
        self.found, self.weights = {}, weights
        self.connect(take_lease=True)
        self.context.each(self._find_removals)

    def remove(self) -> None:
        """Removes what `find_removals` found."""
        self.context.each(self._remove)

    def _blocking_findings(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """None: prune must work on a full disk."""
        return ()

    def _find_removals(self, host: Host) -> None:
        result = self.results[host.name]
        self.found[host.name] = self._removals(host)
        result.changes = [Change("prune", removal.text) for removal in self.found[host.name]]
        result.state = "differs" if result.changes else "unchanged"

    def _removals(self, host: Host) -> tuple[Removal, ...]:
        plans, probe = self.plans[host.name], self.results[host.name].probe
        assert probe is not None
        names = [name_of(plan.build, probe.architecture, probe.os) for plan in plans if plan.build]
        loaded = [checkpoint for plan in plans for checkpoint in plan.checkpoints]
        folders = [layout.weights_folder(each.repo, each.revision) for each in loaded if each.revision]
        kernels = unnamed_folders(host, [plan.moe_folder.path for plan in plans if plan.moe_folder])
        unused = (Removal(f"tuned kernels {path.rpartition('/')[2]}", path, size) for path, size in kernels.items())
        found = _leftovers(host)
        unneeded = removals(found, names, folders if self.weights else None) if found else ()
        return (*unneeded, *unused)

    def _remove(self, host: Host) -> None:
        """Removes what was shown and is still unneeded, as another run may have had the host meanwhile."""
        result, lease = self.results[host.name], self.context.leases[host.name]
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


def _leftovers(host: Host) -> Leftovers | None:
    """What is on a host; None if it has no Python."""
    program = program_file("leftovers.py").read_text()
    words = ("python3", "-", layout.BUILDS, layout.WEIGHTS, SERVICES, layout.PACKAGES, layout.CACHE)
    if not remote.run(host, "sh", "-c", "command -v python3").ok:
        return None
    output = remote.run(host, *words, stdin=program, timeout=LIST_SECONDS)
    if not output.ok:
        raise HostFailed(
            f"{host.name}: cannot determine what is needed: {output.last_line}", "nothing was removed; check "
            f"{SERVICES}/*/releases/*/release.json"
        )  # fmt: skip
    return read_leftovers(output.stdout)


def _take_away(host: Host, removal: Removal) -> None:
    """Renames before deleting, so that a build or checkpoint is never incomplete under its own name."""
    folder, _, name = removal.path.rpartition("/")
    gone = f"{folder}/.removed-{name.lstrip('.')}"
    remote.script(host, 'rm -rf "$2"; mv -T "$1" "$2"; rm -rf "$2"', removal.path, gone, timeout=REMOVE_SECONDS)
    if removal.image:
        remote.run(host, "podman", "image", "rm", removal.image, timeout=REMOVE_SECONDS)
