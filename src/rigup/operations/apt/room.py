"""Whether packages fit on a host's disks, by the sizes in its package lists, before apt downloads the first of them."""

from __future__ import annotations

from collections.abc import Iterable

from rigup.errors import HostFailed
from rigup.facts.bounds import count
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.units import bytes_text

ARCHIVES, FILES = "/var/cache/apt/archives", "/usr"
APT_SECONDS = 120

# Prints the sizes of all new packages and of those downloaded already, then free bytes and mount of both folders.
_SIZES = rf"""
apt-get -qq -s "$@" 2>/dev/null | sed -n 's/^Inst \([^ ]*\) .*(\([^ ]*\) .*/\1=\2/p' |
  xargs -r apt-cache --no-all-versions show | grep -E '^(Size|Installed-Size):'
find {ARCHIVES} -name '*.deb' -printf 'There: %s\n'
df -B1 --output=avail,target {ARCHIVES} {FILES} | sed '1d; s/^ */Free: /'
"""


def require_room(host: Host, step: str, words: Iterable[str]) -> None:
    """Raises HostFailed with both sizes if apt-get with these words would fill a disk.

    What apt cannot resolve passes: it says why when it runs.
    """
    lines = remote.run(host, "sh", "-c", _SIZES, "rigup", *words, timeout=APT_SECONDS).stdout.splitlines()
    for folder, needed, free in _shortages(lines):
        raise HostFailed(
            f"{host.name}: {step}: the packages need {bytes_text(needed)} in {folder}, "
            f"but only {bytes_text(free)} are free",
            "free up space, or mount a larger disk there",
        )


def _shortages(lines: Iterable[str]) -> list[tuple[str, int, int]]:
    """Each folder without room, with the bytes that it needs and those that are free."""
    totals = {"Size": 0, "Installed-Size": 0, "There": 0}
    free: list[tuple[str, int]] = []
    for key, _, value in (line.partition(": ") for line in lines):
        if key == "Free":
            size, _, mount = value.partition(" ")
            free.append((mount.strip(), count(size)))
        elif key in totals:
            totals[key] += count(value.strip())
    if len(free) != 2:
        return []
    needed = {ARCHIVES: max(0, totals["Size"] - totals["There"]), FILES: totals["Installed-Size"] * 1024}
    if free[0][0] == free[1][0]:
        needed = {FILES: sum(needed.values())}
    there = dict(zip((ARCHIVES, FILES), (size for _, size in free), strict=True))
    return [(folder, size, there[folder]) for folder, size in needed.items() if size > there[folder]]
