"""`rigup tune`: runs an engine's own fused-MoE tuner on one host of a group, with its services paused.

The tuner's own systemd unit stops and starts the services: they come back when the tuner ends, fails, is stopped or
killed, even if rigup or the connection is gone by then. A second `rigup tune` continues a run that is still running.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigup import layout
from rigup.cache import cache_folder
from rigup.catalogue.moe_configs import FOLDER, TunedKernel, path_of
from rigup.catalogue.tools.tuners import Tuner
from rigup.commands.moe_configs import canonical_text
from rigup.commands.tuning import tuning_job
from rigup.connection.lease import Lease, myself
from rigup.errors import HostFailed, InputError, Refused
from rigup.facts.bounds import json_of, shown
from rigup.facts.probe import Probe
from rigup.host import Host
from rigup.lock import LockedSource
from rigup.operations.builds.source import name_of
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.units import stop_limit
from rigup.operations.service.health import ask_service, expected_of
from rigup.plan import Finding, Plan
from rigup.preflight.checks import OF_APPLY_ALONE
from rigup.programs import program_file
from rigup.regular_files import replace_file
from rigup.run.gateways.drains import GatewayDrains
from rigup.run.runner import Run
from rigup.run.services.startable import check_startable
from rigup.sources.archives import fetch_source
from rigup.tuning.gain import Gain, gain_of

LONGEST_RESULT = 2**20
QUIET_SECONDS = 1800.0
"""Without a new status: the tuner imports the engine and compiles kernels before it counts, and measures everything
in one step."""
BASELINES = {
    "engine": "the engine's packaged config",
    "missing": "the engine's default (no config)",
    "files": "the previous config",
}


@dataclass(frozen=True)
class TuningRequest:
    """What to tune: a plan's kernel, with the tuner from a pinned archive. files: the tuner's, text by name."""

    plan: Plan
    source: LockedSource
    files: Mapping[str, str]
    tokens: Sequence[int]
    runs: int


@dataclass(frozen=True)
class TuningResult:
    """The result of tuning on one host."""

    host: str
    tuned: TunedKernel
    gain: Gain
    seconds: float


def tuner_files(tuner: Tuner, source: LockedSource, host: str) -> dict[str, str]:
    """The tuner's files from its archive, which is downloaded if it is not in the cache, and verified by its hash.

    Raises InputError if a file is not in the archive, and the errors of `fetch_source`.
    """

    def progress(done: int, total: int) -> None:
        report(Progress(host, "tuner", done, total, "bytes", "fetching the tuner's archive"))

    archive = fetch_source(source, cache_folder() / "sources", progress)
    wanted = {f"{source.root}/{path}": path.rpartition("/")[2] for path in tuner.files}
    found: dict[str, str] = {}
    with tarfile.open(archive) as opened:
        for member in opened:
            file = opened.extractfile(member) if member.name in wanted and member.isfile() else None
            if file is not None:
                found[wanted[member.name]] = file.read().decode()
    if missing := [path for path, name in wanted.items() if name not in found]:
        raise InputError(f"{source.engine} {source.version}: {source.address} does not contain {', '.join(missing)}")
    return {name: found[name] for name in wanted.values()}


class TuningRun(Run):
    """A run over the hosts of a group, one of which tunes."""

    outcome: TuningResult | None = None

    def idle_host(self) -> str | None:
        """The host to tune on: the one with the fewest running services; None if no host could be probed."""
        asked = [name for name, result in self.results.items() if result.state == "pending" and result.probe]
        return min(asked, key=lambda name: len(self.serving(name)), default=None)

    def serving(self, host: str) -> tuple[str, ...]:
        """The services that run on a host."""
        probe = self.results[host].probe
        running = ("active", "activating", "reloading")
        return tuple(name for name, unit in probe.units.items() if unit.active in running) if probe else ()

    def tune(self, name: str, request: TuningRequest, drains: GatewayDrains | None = None) -> None:
        """Tunes on this host; the others take no further part. The result is in `outcome`.

        drains: takes the host out of gateways while its services are paused.
        """
        self.context.results = {name: self.results[name]}
        if drains and self.serving(name):
            drains.carry_out([name], lambda: self._each_of(name, lambda host: self._tune(host, request)))
        else:
            self._each_of(name, lambda host: self._tune(host, request))

    def _blocking_findings(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """The findings that prevent tuning; those that concern only an installation are left out."""
        return tuple(one for one in super()._blocking_findings(name, probe) if one.rule not in OF_APPLY_ALONE)

    def _each_of(self, name: str, work: Any) -> None:
        host = self.context.state.inventory.get_host(name)
        self.context.guarded(work, host)

    def _tune(self, host: Host, request: TuningRequest) -> None:
        result, shown = self.results[host.name], self.serving(host.name)
        self._lease(host)
        if not self._handshake(host):  # services may have changed while the confirmation was pending
            return
        assert result.probe is not None
        paused = self.serving(host.name)
        if new := [name for name in paused if name not in shown]:
            message = f"{host.name}: {', '.join(new)} started after the confirmation"
            raise Refused(message, "run the same command again")
        for name in paused:
            if name in result.probe.releases:
                check_startable(host.name, result.probe, name, result.probe.releases[name])
        try:
            self.outcome = _tuned(host, request, result.probe, paused, self.context.leases[host.name])
        finally:
            if not jobs.cancelled():
                self._ask(host, paused)
        result.state = "changed"

    def _ask(self, host: Host, services: tuple[str, ...]) -> None:
        """Checks that each paused service answers again."""
        for plan in self.plans[host.name]:
            if plan.service.name in services:
                report(Progress(host.name, "service", text=f"waiting for {plan.service.name} to restart"))
                probe, name = self.results[host.name].probe, plan.service.name
                ask_service(host, plan, expected_of(name, probe.releases.get(name, {}) if probe else {}))


def _tuned(host: Host, request: TuningRequest, probe: Probe, paused: tuple[str, ...], lease: Lease) -> TuningResult:
    """Stages the tuner, runs it under systemd, and reads its result.

    Raises Refused if another run takes the lease; the result stays on the host for the next run.
    """
    plan = request.plan
    build = _require(host, plan, probe)
    digest = _digest(request, build)
    work, unit = f"{layout.TUNING}/{digest}", layout.job_unit("tune", digest)
    program = next(iter(request.files))
    job = tuning_job(plan, build, work, program, request.tokens, request.runs)
    done = remote.run(host, "test", "-f", f"{work}/result.json").ok
    if not done and not _goes_on(host, unit):
        lease.check()
        _stage(host, work, request.files, job)
    began = time.monotonic()
    if not done:
        lease.check()
        units = tuple(layout.unit_name(service) for service in paused)
        command = ("python3", f"{work}/tune_moe.py", f"{work}/job.json")
        job_of_host = jobs.Job(
            unit,
            "tune",
            command,
            (work,),
            private_network=True,
            gpus=True,
            paused=units,
            pause_seconds=stop_limit(host),
            quiet_seconds=QUIET_SECONDS,
            readable=request.plan.checkpoint.shown_files if request.plan.checkpoint else {},
            computes=False,  # a kernel that hangs keeps a CPU busy
        )
        jobs.run(host, job_of_host)
    text = remote.read_workers_file(host, f"{work}/result.json", LONGEST_RESULT)
    if text is None:
        raise HostFailed(f"{host.name}: the tuner produced no result", f"on the host: journalctl -u {unit}")
    result = json_of(text, f"{work}/result.json")
    try:
        tuned, gain = _read(host, request, result, probe)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        message = f"{host.name}: {work}/result.json is invalid ({type(error).__name__})"
        raise HostFailed(message, f"on the host: journalctl -u {unit}") from None
    outcome = TuningResult(host.name, tuned, gain, time.monotonic() - began)
    lease.check()
    remote.run(host, "rm", "-rf", work)
    return outcome


def _goes_on(host: Host, unit: str) -> bool:
    """Whether this tuning is already running on the host. Raises HostFailed if another one is."""
    words = ("list-units", "--plain", "--no-legend", "--state=active,activating,deactivating", "rigup-tune-*")
    listed = remote.check_output(host, "systemctl", *words).splitlines()
    running = [line.split()[0].removesuffix(".service") for line in listed if line.strip()]
    if others := [name for name in running if name != unit]:
        raise HostFailed(
            f"{host.name}: another tuning is running: {', '.join(others)}",
            f"wait for it, or stop it on the host: systemctl stop {others[0]}",
        )
    return bool(running)


def _require(host: Host, plan: Plan, probe: Probe) -> str:
    """The folder of the build. Raises HostFailed if the build, the weights or the current configs are missing."""
    assert plan.build is not None and plan.checkpoint is not None
    name = name_of(plan.build, probe.architecture, probe.os)
    weights = layout.weights_folder(plan.checkpoint.repo, plan.checkpoint.revision or "")
    for what, there in ((f"build {name}", name in probe.builds), (plan.checkpoint.repo, weights in probe.weights)):
        if not there:
            raise HostFailed(f"{host.name}: {what}, needed for tuning, does not exist", "run rigup apply first")
    if plan.moe_folder and not remote.run(host, "test", "-d", plan.moe_folder.path).ok:
        raise HostFailed(f"{host.name}: the kernels to compare with do not exist", "run rigup apply first")
    return f"{layout.BUILDS}/{name}"


def _digest(request: TuningRequest, build: str) -> str:
    assert request.plan.moe_config is not None
    config = request.plan.moe_config
    asked = [build, config.file, config.pins, list(request.tokens), request.runs, dict(request.files)]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]


def _stage(host: Host, work: str, files: Mapping[str, str], job: Mapping[str, Any]) -> None:
    """Puts the tuner, the program that runs it and its job into a folder, which then belongs to the worker."""
    report(Progress(host.name, "tune", text="sending the tuner"))
    remote.make_folders(host, layout.TUNING)
    remote.script(host, 'rm -rf -- "$1"/*', layout.TUNING, doing=f"clearing {layout.TUNING}")
    remote.make_folders(host, work, *(f"{work}/{name}" for name in ("modules", "modules/ray", "home")))
    own = {"tune_moe.py": "tune_moe.py", "unit_status.py": "unit_status.py", "modules/ray/__init__.py": "tuner_ray.py"}
    texts = {**files, **{path: program_file(name).read_text() for path, name in own.items()}}
    for path, text in {**texts, "job.json": json.dumps(job)}.items():
        remote.write_file(host, f"{work}/{path}", text.removesuffix("\n"))
    remote.check_output(host, "chown", "-R", "-P", f"{layout.WORKER_USER}:{layout.WORKER_USER}", work)


def _read(host: Host, request: TuningRequest, result: dict[str, Any], probe: Probe) -> tuple[TunedKernel, Gain]:
    """The kernel with its provenance. Raises HostFailed if the tuner produced another kernel than the plan's."""
    plan, config = request.plan, request.plan.moe_config
    assert plan.build is not None and config is not None
    if result["name"] != config.file:
        raise HostFailed(
            f"{host.name}: the tuner wrote {shown(str(result['name']))}, but the plan's kernel is {config.file}",
            "compare the experts in the plan with the checkpoint's config.json",
        )
    gain = gain_of(result["times"])
    machine = f"{host.name}: {config.device}, driver {probe.nvidia.loaded or 'unknown'}, {probe.os}"
    provenance = {
        "measured_by": f"{myself().who} with rigup tune",
        "measured_on": f"{machine}, {time.strftime('%Y-%m-%d', time.gmtime())}",
        "engine": f"{plan.build.engine} {plan.build.version}",
        "baseline": BASELINES[config.status],
        "gain": gain.text,
        "source": f"{next(iter(request.files))} of {request.source.address}, sha256 {request.source.sha256}",
        "licence": "the fleet's own",
    }
    tuned = TunedKernel(
        experts=config.experts,
        width=config.width,
        dtype=config.dtype,
        block_shape=config.block_shape,
        device=config.device,
        triton=result["triton"],
        provenance=provenance,
        launches=result["table"],
        measurements=gain.rows,
    )
    return tuned, gain


def keep(outcome: TuningResult, root: Path) -> Path:
    """Writes the kernel into the fleet's folder atomically; returns its path. Raises InputError on failure."""
    path = root / FOLDER / path_of(outcome.tuned)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, canonical_text(outcome.tuned).encode())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", "check the permissions of the folder") from None
    return path
