"""Whether packages fit on a host's disks, by the sizes in its package lists, before apt downloads the first of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rigup.errors import HostFailed
from rigup.facts.bounds import count
from rigup.host import Host, state_of
from rigup.operations.primitives import remote
from rigup.units import bytes_text

ARCHIVES, FILES = "/var/cache/apt/archives", "/usr"
APT_SECONDS = 120

# Prints the installed sizes of all new packages, the sizes of those that are not downloaded yet, then free bytes and
# mount of both folders. Without a folder of archives, apt names all that it would download: resolving once is enough,
# and does without a simulation, which takes apt several times as long. The epoch's colon is escaped in a file's name.
_SIZES = rf"""
apt-get -qq -y --print-uris -o Dir::Cache::archives=/nonexistent "$@" 2>/dev/null |
  sed -n "s/^'[^']*' \([^ ]*\) \([0-9]*\) .*/\1 \2/p" | {{
  while read -r file size; do
    [ "$(stat -c %s "{ARCHIVES}/$file" 2>/dev/null)" = "$size" ] || echo "Size: $size" >&3
    echo "$file"
  done | sed 's/^\([^_]*\)_\([^_]*\)_\([^_]*\)\.deb$/\1:\3=\2/; s/%3a/:/' |
    xargs -r apt-cache --no-all-versions show | grep '^Installed-Size:'
}} 3>&1
df -B1 --output=avail,target {ARCHIVES} {FILES} | sed '1d; s/^ */Free: /'
"""


@dataclass
class _Spare:
    """By mount, the bytes that packages may take; where a mount is missing, all that are free."""

    bytes: dict[str, int] = field(default_factory=dict)


def leave_room(host: Host, spare: Mapping[str, int]) -> None:
    """Has packages take no more of a disk than these bytes in this run: the others are for what it writes beside."""
    state_of(host, _Spare).bytes = dict(spare)


def require_room(host: Host, step: str, words: Iterable[str]) -> None:
    """Raises HostFailed with both sizes if apt-get with these words would fill a disk.

    What apt cannot resolve passes: it says why when it runs.
    """
    lines = remote.run(host, "sh", "-c", _SIZES, "rigup", *words, timeout=APT_SECONDS).stdout.splitlines()
    spare = state_of(host, _Spare).bytes
    try:
        needs = _needs(lines)
    except ValueError as error:
        raise HostFailed(f"{host.name}: {step}: the sizes that apt states: {error}") from None
    for folder, mount, needed, free in needs:
        left = min(free, spare.get(mount, free))
        if needed > left:
            beside = "" if left == free else " beside the weights and builds of this run"
            raise HostFailed(
                f"{host.name}: {step}: the packages need {bytes_text(needed)} in {folder}, "
                f"but only {bytes_text(max(0, left))} are free{beside}",
                "free up space, or mount a larger disk there",
            )
    for _, mount, needed, _ in needs:
        if mount in spare:
            spare[mount] -= needed


def _needs(lines: Iterable[str]) -> list[tuple[str, str, int, int]]:
    """Each folder with its mount, the bytes that the packages need there and those that are free. Raises ValueError."""
    totals = {"Size": 0, "Installed-Size": 0}
    free: list[tuple[str, int]] = []
    for key, _, value in (line.partition(": ") for line in lines):
        if key == "Free":
            size, _, mount = value.partition(" ")
            free.append((mount.strip(), count(size)))
        elif key in totals:
            totals[key] += count(value.strip())
    if len(free) != 2:
        return []
    needed = {ARCHIVES: totals["Size"], FILES: totals["Installed-Size"] * 1024}
    if free[0][0] == free[1][0]:
        needed = {FILES: sum(needed.values())}
    there = dict(zip((ARCHIVES, FILES), free, strict=True))
    return [(folder, there[folder][0], size, there[folder][1]) for folder, size in needed.items()]
