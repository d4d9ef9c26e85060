"""The drift that takes commands on the host to find: changed files, edited units. Read-only."""

import json
from collections.abc import Iterator

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.bounds import Unreadable, json_of
from rigup.facts.host_output import HostOutput, Line, checked
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.units import service_state
from rigup.operations.service.releases import ENABLED, CurrentRelease
from rigup.operations.weights.host_files import hash_job
from rigup.plan import Checkpoint, Plan
from rigup.run.drift import MOST_NAMED, Drift
from rigup.units import bytes_text, list_text

# A slow disk hashes this many bytes per second; a check that takes longer is taken to hang.
LEAST_HASHED_PER_SECOND = 30_000_000
CHECK_SECONDS = 60
ASKED_ROLES = frozenset(("service", "weights"))


class WeightsCheck(HostOutput):
    """The output of `fetch_weights.py --check`: names of missing files, and of files that differ from the lock."""

    missing: list[Line]
    bad: list[Line]


def read_check(text: str, what: str) -> WeightsCheck:
    """Parses the last line of the output. Raises HostFailed, beginning with `what`, if it is invalid."""
    try:
        return checked(WeightsCheck, json_of(text, "its answer"), "its answer")
    except Unreadable as error:
        raise HostFailed(f"{what}: {error}") from None


def asked_drift(host: Host, plans: tuple[Plan, ...], differing: set[str], deep: bool) -> list[Drift]:
    """The drift of a host's services. differing: the roles that would change something on the host.

    deep: hash every file of every checkpoint again, regardless of the receipts.
    """
    found: list[Drift] = []
    for plan in plans:
        if "service" in differing:
            found += _unit(host, plan.service.name)
        if deep or "weights" in differing:
            for checkpoint in plan.checkpoints:
                found += _checkpoint(host, plan.service.name, checkpoint, deep)
    return found


def _unit(host: Host, name: str) -> Iterator[Drift]:
    running = host.get_fact(CurrentRelease, service=name)
    if not running.current or running.current == "none":
        return
    unit = layout.unit_name(name)
    if running.installed != running.unit:
        problem = "differs from" if running.installed else "does not exist, but is part of"
        yield Drift("unit", f"its unit file {problem} release {running.current}", name)
    enabled = service_state(host, name).enabled
    if enabled not in ENABLED:
        yield Drift("state", f"{unit} is {enabled or 'not enabled'}: it will not start at boot", name)
    if running.answered != "yes":
        yield Drift("state", f"release {running.current} has never answered", name)
    if running.key == "stale":
        yield Drift("config", "runs with another API key than the one in its file", name)


def _checkpoint(host: Host, service: str, checkpoint: Checkpoint, deep: bool) -> Iterator[Drift]:
    if checkpoint.revision is None:
        return
    folder = layout.weights_folder(checkpoint.repo, checkpoint.revision)
    if not remote.run(host, "test", "-d", folder).ok:
        return
    if deep:
        report(Progress(host.name, "hash", text=f"{bytes_text(checkpoint.bytes)} of {checkpoint.repo}"))
    job = json.dumps(hash_job(checkpoint, folder))
    words = ("python3", f"{layout.PROGRAMS}/fetch_weights.py", "--check", *(("--deep",) if deep else ()), "-")
    seconds = CHECK_SECONDS + (checkpoint.bytes / LEAST_HASHED_PER_SECOND if deep else 0)
    output = remote.run(host, *words, stdin=job, timeout=seconds)
    what = f"{checkpoint.repo} could not be checked"
    if not output.stdout.strip():
        raise HostFailed(f"{host.name}: {what}: {output.last_line}")
    answer = read_check(output.stdout.splitlines()[-1], f"{host.name}: {what}")
    for key, words_for in (("missing", "missing"), ("bad", "not as locked" if deep else "changed since the last hash")):
        if names := getattr(answer, key):
            yield Drift("checkpoint", f"{words_for}: {list_text(names, MOST_NAMED)}", service)
