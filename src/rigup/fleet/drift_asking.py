"""What of a host's drift only the host can tell: files that were touched, units that were edited. It only reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rigup import layout
from rigup.errors import HostFailed
from rigup.fleet.drift import Drift
from rigup.operations import remote
from rigup.operations.progress import Progress, report
from rigup.operations.releases import ENABLED, CurrentRelease
from rigup.operations.service_units import service_state
from rigup.plan import Plan
from rigup.units import bytes_text

# A slow disk hashes this much; what takes longer is taken to hang.
LEAST_HASHED_PER_SECOND = 30_000_000
CHECK_SECONDS = 60
ASKED_ROLES = frozenset(("service", "weights"))
_MOST_NAMED = 4


def asked_drift(host: Any, plans: tuple[Plan, ...], differing: set[str], deep: bool) -> list[Drift]:
    """What the services of a host show when asked. differing: the roles that would change something there.

    deep: hash every file of every checkpoint anew, whatever the receipts say.
    """
    found: list[Drift] = []
    for plan in plans:
        if "service" in differing:
            found += _unit(host, plan.service.name)
        if deep or "weights" in differing:
            found += _checkpoint(host, plan, deep)
    return found


def _unit(host: Any, name: str) -> Iterator[Drift]:
    running = host.get_fact(CurrentRelease, service=name)
    if not running.current or running.current == "none":
        return
    unit = layout.unit_name(name)
    if running.installed != running.unit:
        what = "is not as release" if running.installed else "is gone; release"
        yield Drift("unit", f"its unit file {what} {running.current} has it", name)
    enabled = service_state(host, name).enabled
    if enabled not in ENABLED:
        yield Drift("state", f"{unit} is {enabled or 'not enabled'}: it would not start at boot", name)
    if running.answered != "yes":
        yield Drift("state", f"release {running.current} has never answered", name)
    if running.key == "stale":
        yield Drift("config", "runs with another API key than the one in its file", name)


def _checkpoint(host: Any, plan: Plan, deep: bool) -> Iterator[Drift]:
    checkpoint = plan.checkpoint
    if checkpoint is None or checkpoint.revision is None:
        return
    folder = layout.weights_folder(checkpoint.repo, checkpoint.revision)
    if not remote.ask(host, "test", "-d", folder).ok:
        return
    if deep:
        report(Progress(host.name, "hash", text=f"{bytes_text(checkpoint.bytes)} of {checkpoint.repo}"))
    job = json.dumps({"folder": folder, "files": [file.model_dump() for file in checkpoint.files]})
    words = ("python3", f"{layout.PROGRAMS}/fetch_weights.py", "--check", *(("--deep",) if deep else ()), "-")
    seconds = CHECK_SECONDS + (checkpoint.bytes / LEAST_HASHED_PER_SECOND if deep else 0)
    said = remote.ask(host, *words, stdin=job, timeout=seconds)
    try:
        answer = json.loads(said.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise HostFailed(f"{host.name}: {checkpoint.repo} could not be checked: {said.last_line}") from None
    for key, words_for in (("missing", "missing"), ("bad", "not as locked" if deep else "changed since it was hashed")):
        if names := answer[key]:
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            yield Drift("checkpoint", f"{words_for}: {', '.join(names[:_MOST_NAMED])}{more}", plan.service.name)
