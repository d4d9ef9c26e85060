"""Why apt or dpkg failed, and what the host has to say about it.

dpkg names the package and not the reason, which the package's scripts printed before that: a full /boot, a module that
DKMS could not compile.
"""

from __future__ import annotations

import re

from rigup.catalogue.driver_versions import nvidia_versions
from rigup.errors import HostFailed
from rigup.facts.bounds import count
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.printable import one_line
from rigup.units import bytes_text

AGAIN = "run rigup apply again"
MOST_CHARACTERS = 300
"""Of one line that the host prints."""

_DPKG = re.compile(r"dpkg: error processing (?:package|archive) (\S+)")
_FOLLOWS = re.compile(r"\s+dependency problems")
_SCRIPT = re.compile(r"\s+.*\bscript\b.* returned error")
_BEGINS = re.compile(r"(?:Setting up|Unpacking|Preparing to unpack|Processing triggers for|Removing) ")
_FULL = re.compile(remote.FULL)
# What a package's scripts print when something went wrong, the most telling first.
_CAUSES = (
    _FULL,
    re.compile(r"Error!"),
    re.compile(r"\berror\b|^E: ", re.IGNORECASE),
    re.compile(r"\b(?:cannot|could not|unable|not found|denied|fail(?:ed|ure|s)?)\b", re.IGNORECASE),
)
_APT = (r"E: (?!Sub-process|Some index files|Failed to fetch)", r"E: Failed to fetch", r"dpkg: error", r"E: ")

_BUILD = re.compile(r"module build on kernel:? (\S+)|/var/lib/dkms/\S+/make\.log")
# The log of the newest build that DKMS did not finish, then the first error of the compiler in it, else of make.
_LOG = r"""
for log in $(ls -t /var/lib/dkms/*/*/build/make.log 2>/dev/null); do
  echo "$log"
  grep -m 1 -aE '(^|[^A-Za-z])error: ' "$log" || grep -m 1 -aE '\*\*\*|[Ee]rror' "$log"
  break
done
true
"""
_DKMS_LOG = re.compile(r"/var/lib/dkms/([^/\s]+)/([^/\s]+)/build/make\.log")
_FREE = "df -B1 --output=avail,target / /boot /usr /var /tmp 2>/dev/null | sed 1d; true"


def reason(text: str) -> str:
    """What went wrong by apt's or dpkg's output, in one line: with the package, if dpkg could not finish one."""
    lines = _lines_of(text)
    if (at := _first_package(lines)) is not None:
        package = _named(lines[at])
        cause = _cause(lines, at)
        return f"dpkg cannot finish {package}" + (f": {cause}" if cause else "")
    for wanted in _APT:
        for line in map(str.strip, lines):
            if re.match(wanted, line):
                return line.removeprefix("E: ")
    return lines[-1].strip() if lines else "exited without output"


def _lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _named(line: str) -> str:
    """The package, or the file of one, in dpkg's headline."""
    return line.partition("processing ")[2].split()[1].rpartition("/")[2]


def _unfinished(text: str) -> str:
    """The package that dpkg has installed by halves; "" if there is none."""
    lines = _lines_of(text)
    at = _first_package(lines)
    name = "" if at is None else _named(lines[at])
    return "" if name.endswith(".deb") else name


def _first_package(lines: list[str]) -> int | None:
    """Where dpkg names the first package that failed by itself, not for want of another."""
    found = [at for at, line in enumerate(lines) if _DPKG.match(line)]
    alone = [at for at in found if not (at + 1 < len(lines) and _FOLLOWS.match(lines[at + 1]))]
    return next(iter(alone or found), None)


def _cause(lines: list[str], at: int) -> str:
    """The line that says why dpkg could not finish the package that it names in line `at`; "" if none does."""
    after = lines[at + 1] if at + 1 < len(lines) and lines[at + 1].startswith(" ") else ""
    if after and not _SCRIPT.match(after):
        return after.strip()
    begins = [number for number in range(at) if _BEGINS.match(lines[number]) or _DPKG.match(lines[number])]
    printed = [line.strip() for line in lines[begins[-1] + 1 if begins else 0 : at]]
    for telling in _CAUSES:
        if found := next(filter(telling.search, printed), ""):
            return found.removeprefix("E: ")
    return printed[-1] if printed else after.strip()


def failed(host: Host, where: str, text: str, hint: str) -> HostFailed:
    """The error for a command of apt, dpkg or DKMS with this output.

    where: begins the message: the host, and what it did. hint: for a cause that is none of those known here.
    """
    why = reason(text)
    if _FULL.search(text):
        return _full(host, f"{where}: {why}")
    if built := _BUILD.search(text):
        return not_built(host, f"{where}: {why}", built[1] or "", hint)
    if package := _unfinished(text):
        hint = f"{hint}; repair {package}, or remove it: apt-get remove {package}; then {AGAIN}"
    return HostFailed(f"{where}: {why}", hint)


def _full(host: Host, message: str) -> HostFailed:
    """That a disk is full: the one with the least free space."""
    lines = [line.split(None, 1) for line in _lines(host, _FREE)]
    try:
        free, mount = min((count(words[0]), words[1]) for words in lines if len(words) > 1)
    except ValueError:  # no line, or no number
        return HostFailed(message, f"free up space: on the host: df -h; then {AGAIN}")
    way = ", for example with apt-get autoremove --purge" if mount in ("/", "/boot") else ""
    return HostFailed(
        f"{message}; {bytes_text(free)} are free in {mount}", f"free up space in {mount}{way}; then {AGAIN}"
    )


def not_built(host: Host, message: str, kernel: str, hint: str) -> HostFailed:
    """That DKMS could not compile a module: with its log, the first error there, and the driver to lock instead.

    kernel: for which it was; "" if unknown. hint: where there is no log.
    """
    log, error = (*_lines(host, _LOG), "", "")[:2]
    if not (found := _DKMS_LOG.fullmatch(log)):
        return HostFailed(message, hint)
    module, version = found.groups()
    message = f"{message}; {log}: {error or 'no error in it'}"
    if module == "nvidia":
        return HostFailed(message, _other_driver(version, kernel))
    return HostFailed(
        message, f"remove the package of module {module}, or boot a kernel for which it compiles; then {AGAIN}"
    )


def _lines(host: Host, script: str) -> list[str]:
    """What a script prints on the host, each line short and printable."""
    return [
        one_line(line.strip()[:MOST_CHARACTERS]) for line in remote.run(host, "sh", "-c", script).stdout.splitlines()
    ]


def _other_driver(version: str, kernel: str) -> str:
    """The hint where a driver's module does not compile: newer drivers are made for newer kernels."""
    numbers = _numbers(version)
    later = [known for known in nvidia_versions().driver.versions if _numbers(known) > numbers]
    boot = f"boot a kernel older than {kernel}" if kernel else "boot an older kernel"
    if not later:
        return f"{boot}, then {AGAIN}; no later driver is known here"
    return f"lock a later driver: rigup lock --upgrade driver={later[0]}, then {AGAIN}; or {boot}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", version))
