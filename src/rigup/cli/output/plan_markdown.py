"""`rigup plan --format markdown`: what changes for whom, memory, refusals and warnings, for a pull request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rigup.cli.output.plan import alike, parallel_text
from rigup.cli.output.plan_json import plan_as_json
from rigup.errors import InputError
from rigup.plan import Plan
from rigup.printable import one_line
from rigup.regular_files import read_text

COMPARED = {
    "verdict": "verdict",
    "engine": "engine",
    "checkpoint": "checkpoint",
    "draft": "draft",
    "parallel": "parallelism",
    "context": "context",
    "kv_cache_type": "KV cache",
}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")
Row = Mapping[str, Any]
Before = Mapping[tuple[str, str], Row]


def markdown(plans: Sequence[Plan], before: Before | None = None) -> str:
    """The summary. before: earlier plans by host and service; None compares with nothing."""
    groups = [(plan, hosts) for plan, hosts in alike(plans)]
    services = [plan for plan in plans if not plan.rank]
    refused = sum(plan.verdict == "refused" for plan in services)
    lines = [f"## rigup plan: {len(services) - refused} planned, {refused} refused", ""]
    if before is not None:
        lines += ["### Changes", "", *(_changes(services, before) or ["Nothing changes."]), ""]
    lines += ["### Services", "", "| service | hosts | serves | with | context | GPU memory |", "| --- " * 6 + "|"]
    lines += [_service(plan, hosts) for plan, hosts in groups]
    for title, kind in (("Refused", "refusals"), ("Warnings", "warnings")):
        found = [line for plan, hosts in groups for line in _findings(plan, hosts, kind)]
        lines += ["", f"### {title}", "", *found] if found else []
    return "\n".join(lines) + "\n"


def read_before(path: str) -> Before:
    """The output of `rigup plan --json`, by host and service. Raises InputError if it is not that."""
    try:
        rows = json.loads(read_text(Path(path)))["hosts"]
        return {(str(row["host"]), str(row["service"]["name"])): dict(row) for row in rows if not row["rank"]}
    except (ValueError, KeyError, TypeError):
        raise InputError(f"--before: {path}: not an output of rigup plan --json", "rigup plan --json > FILE") from None


def _service(plan: Plan, hosts: Sequence[str]) -> str:
    name = f"{plan.group} / {plan.service.name}"
    if plan.verdict == "refused" or plan.build is None:
        return _row(f"**{escaped(name)}**", escaped(_hosts(hosts)), "**refused**", "", "", "")
    serves = f"{plan.checkpoint.repo} {plan.checkpoint.quant}" if plan.checkpoint else "-"
    engine = f"{plan.build.engine} {plan.build.version}, {parallel_text(plan)}"
    context = f"{plan.context:,}" if plan.context else "-"
    cells = (escaped(_hosts(hosts)), escaped(serves), escaped(engine), context, _memory(plan))
    return _row(f"**{escaped(name)}**", *cells)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _hosts(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")


def _memory(plan: Plan) -> str:
    """The fullest GPU."""
    if not plan.memory:
        return f"host: {(plan.host_memory_mib or 0) / 1024:.1f} GiB"
    used = [(gpu.capacity_mib - gpu.free_mib, gpu.capacity_mib) for gpu in plan.memory]
    most, capacity = max(used, key=lambda one: one[0] / one[1])
    each = f"{len(used)} GPUs, each at most " if len(used) > 1 else ""
    return f"{each}{most / 1024:.1f} of {capacity / 1024:.1f} GiB"


def _changes(plans: Iterable[Plan], before: Before) -> list[str]:
    """A line per change, with the hosts that have it in common."""
    hosts_of: dict[str, list[str]] = {}
    there = {(plan.host, plan.service.name): plan_as_json(plan) for plan in plans}
    for key in dict.fromkeys((*there, *before)):
        for words in _between(key[1], before.get(key), there.get(key)):
            hosts_of.setdefault(words, []).append(key[0])
    return [f"- {words} ({escaped(_hosts(hosts))})" for words, hosts in hosts_of.items()]


def _between(service: str, old: Row | None, new: Row | None) -> Iterator[str]:
    name = f"**{escaped(service)}**"
    if new is None:
        yield f"{name}: removed from the inventory"
    elif old is None:
        yield f"{name}: new"
    else:
        for key, words in COMPARED.items():
            if old.get(key) != new[key]:
                yield f"{name}: {words}: {_text(old.get(key))} → {_text(new[key])}"
        gone, added = (_words(one, other) for one, other in ((old, new), (new, old)))
        if gone or added:
            yield f"{name}: command line: {_code(gone)} → {_code(added)}"
        if old.get("environment") != new["environment"]:
            yield f"{name}: environment variables"  # their values may be private


def _words(row: Row, other: Row) -> list[str]:
    return [str(word) for word in row.get("command") or () if word not in (other.get("command") or ())]


def _code(words: Sequence[str]) -> str:
    return f"`{one_line(' '.join(words)).replace('`', chr(39))}`" if words else "nothing"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        value = " ".join(str(part) for key, part in value.items() if key != "bytes" and part not in (1, None, ""))
    return escaped("none" if value is None else str(value))


def _findings(plan: Plan, hosts: Sequence[str], kind: str) -> Iterator[str]:
    for finding in getattr(plan, kind):
        hint = f" Hint: {escaped(finding.hint)}." if finding.hint else ""
        where = f"**{escaped(plan.service.name)}** ({escaped(_hosts(hosts))})"
        yield f"- {where}: {escaped(finding.message)} [`{finding.rule}`].{hint}"


def escaped(text: str) -> str:
    """The text on one line, without a meaning in Markdown."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
