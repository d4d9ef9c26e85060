"""The releases that a host retains: their contents and differences."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.bounds import LAST_SECOND, Unreadable, count, line
from rigup.facts.host import Probe
from rigup.facts.manifest import read_manifest
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.service.held import ANSWERED
from rigup.operations.service.releases import BEFORE
from rigup.systemd.release import GROUP_KEY, as_kept

# Its $1: rigup's configuration; $2: ANSWERED. It prints
# "release SERVICE NUMBER SECONDS current|- answered|- BEFORE|- BUILT_BY|- MANIFEST".
LIST = (
    f"before={BEFORE} builds={layout.BUILDS}"
    + r"""
for folder in "$1"/services/*/; do
  [ -d "$folder/releases" ] || continue
  service=$(basename "$folder"); current=$(basename "$(readlink "$folder/current" || echo none)")
  for release in "$folder"releases/[0-9]*/; do
    number=$(basename "$release"); now=-; answered=-
    case "$number" in *[!0-9]*) continue ;; esac
    [ -f "$release/release.json" ] || continue
    [ "$number" = "$current" ] && now=current
    [ -e "$release/$2" ] && answered=answered
    build=$(sed -n 's/^{"build": "\([^"/]*\)".*/\1/p' "$release/release.json")
    by=$(sed -n 's/^ "built_by": "\([^" ]*\)".*/\1/p' "$builds/$build/manifest.json" 2>/dev/null || true)
    printf 'release %s %s %s %s %s %s %s %s\n' "$service" "$number" "$(stat -c %Y "$release/release.json")" \
      "$now" "$answered" "$(cat "$release/$before" 2>/dev/null || echo -)" "${by:--}" \
      "$(cat "$release/release.json")"
  done
done
"""
)


@dataclass(frozen=True)
class RetainedRelease:
    """A retained release. made: when it was written, in seconds since 1970. answered: whether it has ever answered.

    before: the number of the answering release that it replaced, if any; None also for releases of older rigups.
    built_by: the host that compiled or installed its build, from the build's manifest; None if it does not say.
    damage: why its manifest is unreadable; then the manifest is {} and the release never counts as answered.
    """

    service: str
    number: int
    made: int
    current: bool
    answered: bool
    manifest: dict[str, Any]
    before: int | None = None
    built_by: str | None = None
    damage: str = ""


_MOST_RELEASES = 10_000


def read_kept(host: Host) -> dict[str, tuple[RetainedRelease, ...]]:
    """The retained releases of each service, oldest first. Raises HostFailed, or one of CONNECTION_ERRORS."""
    return parse_kept(remote.script(host, LIST, layout.CONFIGURATION, ANSWERED))


def parse_kept(text: str) -> dict[str, tuple[RetainedRelease, ...]]:
    """Parses the output of LIST: the releases of each service, oldest first. Ignores other lines.

    Raises Unreadable for more than _MOST_RELEASES lines.
    """
    found: dict[str, list[RetainedRelease]] = {}
    for number, listed in enumerate(text.split("\n")):
        if number > _MOST_RELEASES:
            raise Unreadable(f"more than {_MOST_RELEASES:,} releases")
        with suppress(ValueError):
            release = _kept(listed)
            found.setdefault(release.service, []).append(release)
    return {service: tuple(sorted(kept, key=lambda release: release.number)) for service, kept in found.items()}


def _kept(listed: str) -> RetainedRelease:
    """Parses one line of LIST. Raises ValueError if it is invalid."""
    _, name, number, made, now, answered, before, built_by, text = listed.split(" ", 8)
    service, manifest, damage, own = line(name), {}, "", count(number)
    try:
        manifest = read_manifest(text, f"{layout.service_folder(service)}/releases/{own}/release.json")
    except Unreadable as error:
        damage = str(error)
    replaced = count(before) if before.isascii() and before.isdigit() else None
    return RetainedRelease(
        service,
        own,
        count(made, LAST_SECOND),
        now == "current",
        answered == "answered" and not damage,
        manifest,
        replaced if replaced is not None and replaced < own else None,
        line(built_by) if built_by != "-" else None,
        damage,
    )


def damage_of(host: str, kept: Mapping[str, tuple[RetainedRelease, ...]]) -> tuple[HostFailed, ...]:
    """An error for each release of a host with an unreadable manifest."""
    return tuple(
        HostFailed(f"{host}: {release.damage}", damage_hint(release.service, release.current))
        for releases in kept.values()
        for release in releases
        if release.damage
    )


def damage_hint(service: str, current: bool) -> str:
    """The hint for a release with an unreadable manifest."""
    if current:
        return f"run rigup apply to create a new release of {service}"
    return "remove the folder of that release on the host; it cannot be rolled back to"


def check_applied(host: str, service: str, probe: Probe) -> None:
    """Raises HostFailed if the current release of a service cannot be read, or does not exist."""
    if damage := probe.damaged.get(service):
        raise HostFailed(f"{host}: {damage}", damage_hint(service, current=True))
    if service not in probe.releases:
        raise HostFailed(f"{host}: {service} was never applied", "run rigup diff to see what apply would do")


def newest(kept: tuple[RetainedRelease, ...]) -> RetainedRelease:
    """The last release with a readable manifest, else the last. kept: not empty, oldest first."""
    return next((release for release in reversed(kept) if not release.damage), kept[-1])


def earlier(kept: tuple[RetainedRelease, ...], number: int | None) -> tuple[RetainedRelease, ...]:
    """The releases that have answered and that release `number` may roll back to, best last: those that it replaced.

    kept: of a service, oldest first. Without a record of these, those with a lower number; all if `number` is None.
    """
    by_number = {release.number: release for release in kept}
    line: list[RetainedRelease] = []
    at = by_number.get(number) if number is not None else None
    while at is not None and at.before is not None:
        at = by_number.get(at.before)
        if at is not None and at.answered:
            line.append(at)
    rest = [r for r in kept if r.answered and r not in line and (number is None or r.number < number)]
    return (*rest, *reversed(line))


def with_replaced(kept: tuple[RetainedRelease, ...]) -> list[tuple[RetainedRelease | None, RetainedRelease]]:
    """Each release after the one that ran before it: its `before`, or that with the next lower number if it has none.

    kept: of a service, oldest first. None: the first, or one whose predecessor is no longer retained.
    """
    by_number = {release.number: release for release in kept}
    return [
        (lower if release.before is None else by_number.get(release.before), release)
        for lower, release in zip((None, *kept), kept, strict=False)
    ]


def differences(old: RetainedRelease, new: RetainedRelease) -> tuple[str, ...]:
    """Text of each change of the newer release."""
    if damage := new.damage or old.damage:
        return (damage,)
    before, after = old.manifest, as_kept(new.manifest, old.manifest)
    before = as_kept(before, after)
    changes = []
    if before.get("build") != after.get("build"):
        changes.append(f"build {before.get('build')} -> {after.get('build')}")
    if before.get("checkpoint") != after.get("checkpoint"):
        changes.append(f"checkpoint {_checkpoint(before)} -> {_checkpoint(after)}")
    changes += _changed(options_of(before.get("command") or []), options_of(after.get("command") or []))
    changes += _changed(before.get("environment") or {}, after.get("environment") or {})
    if (was := hosts_of(before)) != (now := hosts_of(after)):
        changes.append(f"hosts {' and '.join(was) or 'this one'} -> {' and '.join(now) or 'this one'}")
    known = {"build", "checkpoint", "command", "environment", GROUP_KEY}
    changes += [f"{key} changed" for key in sorted({*before, *after} - known) if before.get(key) != after.get(key)]
    other = "another host of the service" if before.get(GROUP_KEY) != after.get(GROUP_KEY) else "the unit file"
    return tuple(changes) or (other,)


def hosts_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The hosts that a release spans, by rank; () for a single-host release."""
    return tuple(str(node["host"]) for node in (manifest.get(GROUP_KEY) or {}).get("nodes") or ())


def group_digest_of(manifest: Mapping[str, Any]) -> str:
    """The digest of the group release that a release is part of; "" for a single-host release."""
    return str((manifest.get(GROUP_KEY) or {}).get("id", ""))


def _checkpoint(manifest: dict[str, Any]) -> str:
    checkpoint = manifest.get("checkpoint") or {}
    revision = str(checkpoint.get("revision") or "")[:12]
    return " ".join(part for part in (checkpoint.get("repo", "none"), checkpoint.get("quant", ""), revision) if part)


def options_of(command: list[str]) -> dict[str, str]:
    """argv as values by flag; words before the first flag are joined under ""."""
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
    changes = []
    for key in dict.fromkeys((*before, *after)):
        if key not in before:
            changes.append(f"+ {key} {after[key]}".rstrip())
        elif key not in after:
            changes.append(f"- {key} {before[key]}".rstrip())
        elif before[key] != after[key]:
            changes.append(f"{key or 'program'} {before[key]} -> {after[key]}")
    return changes
