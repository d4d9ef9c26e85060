"""The releases of its services that a host keeps: what each consists of, and what differs between two of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rigup import layout
from rigup.operations import remote
from rigup.operations.releases import ANSWERED, BEFORE, SET_KEY

# Its $1: rigup's configuration; $2: ANSWERED. It prints
# "release SERVICE NUMBER SECONDS current|- answered|- BEFORE|- MANIFEST".
LIST = (
    f"before={BEFORE}"
    + r"""
for folder in "$1"/services/*/; do
  [ -d "$folder/releases" ] || continue
  service=$(basename "$folder"); current=$(basename "$(readlink "$folder/current" || echo none)")
  for release in "$folder"releases/[0-9]*/; do
    [ -f "$release/release.json" ] || continue
    number=$(basename "$release"); now=-; answered=-
    [ "$number" = "$current" ] && now=current
    [ -e "$release/$2" ] && answered=answered
    printf 'release %s %s %s %s %s %s %s\n' "$service" "$number" "$(stat -c %Y "$release/release.json")" \
      "$now" "$answered" "$(cat "$release/$before" 2>/dev/null || echo -)" "$(cat "$release/release.json")"
  done
done
"""
)


@dataclass(frozen=True)
class KeptRelease:
    """One of them. made: when it was written, in seconds since 1970. answered: whether it has ever answered.

    before: the number of the one that it took over from, if any did answer then; None also where rigup was too old.
    """

    service: str
    number: int
    made: int
    current: bool
    answered: bool
    manifest: dict[str, Any]
    before: int | None = None


def read_kept(host: Any) -> dict[str, tuple[KeptRelease, ...]]:
    """Those of each service, oldest first. Raises HostFailed, or one of LOST."""
    return parse_kept(remote.script(host, LIST, layout.CONFIGURATION, ANSWERED))


def parse_kept(text: str) -> dict[str, tuple[KeptRelease, ...]]:
    """What LIST printed: the releases of each service, oldest first."""
    found: dict[str, list[KeptRelease]] = {}
    for line in text.splitlines():
        with suppress(ValueError):
            _, service, number, made, now, answered, before, manifest = line.split(" ", 7)
            release = KeptRelease(
                service,
                int(number),
                int(made),
                now == "current",
                answered == "answered",
                json.loads(manifest),
                int(before) if before.isdigit() else None,
            )
            found.setdefault(service, []).append(release)
    return {service: tuple(sorted(kept, key=lambda release: release.number)) for service, kept in found.items()}


def earlier(kept: tuple[KeptRelease, ...], number: int | None) -> tuple[KeptRelease, ...]:
    """Those that have answered and release `number` may go back to, the best last: those that it took over from.

    kept: of a service, oldest first. Where nothing is noted, those with a lower number; every one for None.
    """
    by_number = {release.number: release for release in kept}
    line: list[KeptRelease] = []
    at = by_number.get(number) if number is not None else None
    while at is not None and at.before is not None and at.before < at.number:
        at = by_number.get(at.before)
        if at is not None and at.answered:
            line.append(at)
    rest = [r for r in kept if r.answered and r not in line and (number is None or r.number < number)]
    return (*rest, *reversed(line))


def differences(old: KeptRelease, new: KeptRelease) -> tuple[str, ...]:
    """What the newer one changed, in words; what is the same is left out."""
    before, after = old.manifest, new.manifest
    said = []
    if before.get("build") != after.get("build"):
        said.append(f"build {before.get('build')} -> {after.get('build')}")
    if before.get("checkpoint") != after.get("checkpoint"):
        said.append(f"checkpoint {_checkpoint(before)} -> {_checkpoint(after)}")
    said += _changed(_options(before.get("command") or []), _options(after.get("command") or []))
    said += _changed(before.get("environment") or {}, after.get("environment") or {})
    if (was := hosts_of(before)) != (now := hosts_of(after)):
        said.append(f"hosts {' and '.join(was) or 'this one'} -> {' and '.join(now) or 'this one'}")
    known = {"build", "checkpoint", "command", "environment", SET_KEY}
    said += [f"{key} changed" for key in sorted({*before, *after} - known) if before.get(key) != after.get(key)]
    other = "another host of the service" if before.get(SET_KEY) != after.get(SET_KEY) else "the unit around it"
    return tuple(said) or (other,)


def hosts_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The hosts that a release spans, by rank; () for one that serves alone."""
    return tuple(str(node["host"]) for node in (manifest.get(SET_KEY) or {}).get("nodes") or ())


def whole_of(manifest: Mapping[str, Any]) -> str:
    """Which whole a release is a host's part of; "" where it serves alone."""
    return str((manifest.get(SET_KEY) or {}).get("id", ""))


def _checkpoint(manifest: dict[str, Any]) -> str:
    checkpoint = manifest.get("checkpoint") or {}
    revision = str(checkpoint.get("revision") or "")[:12]
    return " ".join(part for part in (checkpoint.get("repo", "none"), checkpoint.get("quant", ""), revision) if part)


def _options(command: list[str]) -> dict[str, str]:
    """argv as values by flag; words before the first flag go together under ""."""
    found: dict[str, str] = {}
    flag = ""
    for word in command:
        if word.startswith("--"):
            flag, given, value = word.partition("=")
            found[flag] = value if given else ""
        else:
            found[flag] = f"{found.get(flag, '')} {word}".strip()
    return found


def _changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    said = []
    for key in dict.fromkeys((*before, *after)):
        if key not in before:
            said.append(f"+ {key} {after[key]}".rstrip())
        elif key not in after:
            said.append(f"- {key} {before[key]}".rstrip())
        elif before[key] != after[key]:
            said.append(f"{key or 'program'} {before[key]} -> {after[key]}")
    return said
