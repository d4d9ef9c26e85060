"""Numbered releases of a service. `current` points to one; a new one must answer, or the previous one is restored.

A rig with memory for one model cannot run the old and the new release at once. So the order is: stage, stop, start,
check with a real request, and restore the old release if it does not answer. A release that has answered is marked; one
that was interrupted before (by a killed rigup or a lost connection) is started and checked again by the next run. Each
release records which one it replaced, which need not be the number before: a rollback may have come in between.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, Protocol

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup import layout
from rigup.errors import HostFailed, RigupError
from rigup.facts.bounds import Unreadable
from rigup.facts.manifest import read_manifest
from rigup.host import Host
from rigup.operations.driver import reboots
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.command_parts import PART_END, parts_of
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.units import service_state, stop_limit
from rigup.operations.service.health import of_lost_host
from rigup.operations.service.held import ANSWERED, FUNCTIONS, speed_of, warn_if_slower
from rigup.operations.service.start_log import explained
from rigup.systemd.api_key import CREDENTIAL_NAME
from rigup.systemd.port_guard import TEMPLATE
from rigup.systemd.release import ServiceRelease, as_kept, without_expected

KEPT = 3
UNITS = "/etc/systemd/system"
QUADLETS = "/etc/containers/systemd"
LOADED = "/run/credentials"  # systemd's copies of running units' credentials
BEFORE = "before"  # file in a release's folder: the number of the healthy release that it replaced
# podman generates a unit from a Quadlet file at every boot, if the file says so: it cannot be enabled.
ENABLED = ("enabled", "generated")

_LISTED = """
mkdir -p "$1/releases"; cd "$1/releases"; basename "$(readlink ../current || echo none)"
for n in [0-9]*; do
  case "$n" in *[!0-9]*) continue ;; esac  # 2.bak is a copy made by hand
  [ -d "$n" ] || continue
  if [ -e "$n/$2" ]; then answered=yes; else answered=no; fi; echo "$n $answered $(cat "$n/$3" 2>/dev/null || true)"
done
"""

_LISTED_LINE = r"([0-9]{1,9}) (yes|no) ?([0-9]*)"

Check = Callable[[Any], object]
# checks an earlier release of a host, given its manifest
CheckEarlier = Callable[[Any, Mapping[str, Any]], object]


class GroupMembership(Protocol):
    """One host's part in changing a multi-host service."""

    def agreed(self, host: Host, needed: bool) -> bool:
        """Whether any host of the service needs a change; waits for all hosts."""

    def activate(
        self, host: Host, release: ServiceRelease | Callable[[Any], ServiceRelease], check: Check, existing: str | None
    ) -> None:
        """Switches all hosts to their releases and checks the head, or rolls all of them back."""

    def given_up(self) -> str:
        """Why the head's health check is hopeless; "" while it may still succeed."""


class Running(NamedTuple):
    """A service's state on the host: the current release, its files, and the installed unit.

    answered: "yes" if the current release has ever answered. key: "stale" if the service runs with another API key
    than the one in its file.
    """

    current: str = ""
    unit: str = ""
    manifest: str = ""
    installed: str = ""
    answered: str = ""
    key: str = ""


class CurrentRelease(FactBase[Running]):
    """Reads a `Running` in one command."""

    default = Running

    def command(self, service: str) -> str:
        folder = layout.service_folder(service)
        parts = (
            f"readlink {folder}/current",
            f"cat {folder}/current/unit",
            f"cat {folder}/current/release.json",
            f"cat {UNITS}/{layout.unit_name(service)} {quadlet_file(service)}",
            f"test -e {folder}/current/{ANSWERED} && echo yes",
            f"{_stale(service)} && echo stale",
        )
        return "; ".join(f"{{ {part}; }} 2>/dev/null; echo '{PART_END}'" for part in parts)

    def process(self, output: list[str]) -> Running:
        current, unit, manifest, installed, answered, key = (
            "\n".join(part) for part in (*parts_of(output), *[[]] * 6)[:6]
        )
        return Running(current.strip().rpartition("/")[2], unit, manifest, installed, answered.strip(), key.strip())


def _stale(service: str) -> str:
    """sh that tests whether a service runs, and with another API key than the one in its file."""
    unit, name = layout.unit_name(service), CREDENTIAL_NAME
    files = f"{UNITS}/{unit} {quadlet_file(service)}"
    other = f"! cmp -s {layout.service_folder(service)}/{name} {LOADED}/{unit}/{name}"
    return f"grep -qs ^LoadCredential= {files} && systemctl is-active --quiet {unit} && {other}"


@operation()
def release(
    wanted: ServiceRelease,
    check: Check,
    check_earlier: CheckEarlier,
    restart: bool = False,
    rebind: Callable[[Any], ServiceRelease] | None = None,
    part: GroupMembership | None = None,
) -> Generator[FunctionCommand, None, None]:
    """Ensures that a service runs this release and answers.

    + wanted: the release
    + check: called with the host after the unit is started; raises if the service does not answer
    + check_earlier: the same for a restored release, which may have another address or model name
    + restart: restart even if the release is unchanged (because a secret changed)
    + rebind: returns the release when it is executed, for values that were unknown at the comparison
    + part: this host's part in a multi-host service, whose hosts change together or not at all
    """
    running = host.get_fact(CurrentRelease, service=wanted.service)
    state = service_state(host, wanted.service)
    same, expects_other = _compared(running, wanted)
    installed = running.installed == running.unit and state.enabled in ENABLED
    runs = state.active == "active" and running.answered == "yes" and running.key != "stale"
    right = same and installed and runs and not restart
    if part is not None:
        right = not part.agreed(host, not right)
    if right and expects_other:
        yield step(_expect, wanted, check, running.current)
        return
    if right:
        host.noop(f"{wanted.service} runs release {running.current}")
        return
    existing = running.current if same else None
    if part is not None:
        yield step(part.activate, rebind or wanted, check, existing)
    else:
        held = running.answered == "yes"
        yield step(_activate, rebind or wanted, check, check_earlier, existing, same and installed, held)


def _manifest(wanted: ServiceRelease) -> str:
    return json.dumps(wanted.manifest, sort_keys=True)


def _compared(running: Running, wanted: ServiceRelease) -> tuple[bool, bool]:
    """Whether the host has this release, and whether that one expects another answer, which takes no start."""
    try:
        kept = read_manifest(running.manifest, "release.json")
    except Unreadable:
        return False, False
    planned = json.loads(_manifest(wanted))
    same = running.unit == wanted.unit.rstrip("\n") and without_expected(kept) == without_expected(planned)
    return same, same and kept != as_kept(planned, kept)


def is_current(running: Running, wanted: ServiceRelease) -> bool:
    """Whether the host has this release, whatever answer it expects."""
    return _compared(running, wanted)[0]


def _expect(host: Host, wanted: ServiceRelease, check: Check, number: str) -> None:
    """Has a release that runs answer as the plan now expects, and notes that in it: nothing else of it changes."""
    report(Progress(host.name, "service", text=f"asking {wanted.service}, release {number}"))
    check(host)
    note_expected(host, wanted, number)


def note_expected(host: Host, wanted: ServiceRelease, number: str) -> None:
    """Writes what a release expects into it, once it has answered so. Its time stays: it is the same release."""
    path = f"{layout.service_folder(wanted.service)}/releases/{number}/release.json"
    made, _, kept = remote.script(host, 'stat -c %Y "$1"; cat "$1"', path).partition("\n")
    if kept.rstrip("\n") != _manifest(wanted):
        remote.write_file(host, path, _manifest(wanted))
        remote.check_output(host, "touch", "-d", f"@{made}", path)


def _activate(
    host: Host,
    release: ServiceRelease | Callable[[Any], ServiceRelease],
    check: Check,
    check_earlier: CheckEarlier,
    existing: str | None,
    installed: bool,
    held: bool = False,
) -> None:
    """Stages the release unless it exists, switches to it, and rolls back if it does not answer.

    held: whether it exists and has answered before. Then it stays whatever comes: what has changed is not the release.

    An installed release that was started by a reboot in this run is checked without another start, unless its API key
    was written after that.
    """
    wanted = release if isinstance(release, ServiceRelease) else release(host)
    number, previous = stage(host, wanted, existing)
    report(Progress(host.name, "service", text=f"starting {wanted.service}, release {number}"))
    began = time.monotonic()
    try:
        if not (installed and reboots.rebooted(host) and _fresh(host, wanted.service)):
            switch(host, wanted.service, number)
        check(host)
    except (RigupError, *remote.CONNECTION_ERRORS) as error:
        if (lost := of_lost_host(host, error, f"whether release {number} answers is unknown")) and not jobs.cancelled():
            raise lost from None
        problem = explained(host, wanted.service, began, remote.words_of(host, error))
        hint = getattr(error, "hint", None) or _journal(wanted.service)
        if existing and held and not jobs.cancelled():
            raise HostFailed(f"{problem}; {stays(number)}", hint) from None
        raise _go_back(host, wanted.service, number, previous, problem, hint, check_earlier) from None
    if existing:
        note_expected(host, wanted, number)
    mark_healthy(host, wanted.service, number)


def stays(number: str) -> str:
    """What messages say of a release that is not replaced by an earlier one."""
    return f"release {number} stays, which has answered before"


def _journal(service: str) -> str:
    return f"on the host: journalctl -u {layout.unit_name(service)}"


def _fresh(host: Host, service: str) -> bool:
    """Whether a service runs with the API key in its file."""
    fresh = f"systemctl is-active --quiet {layout.unit_name(service)} && ! {{ {_stale(service)}; }}"
    return remote.run(host, "sh", "-c", fresh).ok


def stage(host: Host, wanted: ServiceRelease, existing: str | None) -> tuple[str, str | None]:
    """Writes the release under the next number. Returns that number and the release to roll back to, if any."""
    folder = layout.service_folder(wanted.service)
    listing = remote.script(host, _LISTED, folder, ANSWERED, BEFORE, doing=f"listing {folder}").splitlines()
    current, listed = "".join(listing[:1]).strip(), (re.fullmatch(_LISTED_LINE, line) for line in listing[1:])
    releases = {line[1]: line for line in listed if line}
    good = [number for number in sorted(releases, key=int) if releases[number][2] == "yes" and number != existing]
    before = [releases[current][3]] if current in releases else []
    likely = (current, *before, *reversed(good))
    previous = next((number for number in likely if number in good), None)
    if existing:
        return existing, previous
    number = str(max(map(int, releases), default=0) + 1)
    staged = f"{folder}/releases/.{number}"
    note = 'rm -rf "$1"; mkdir "$1"; [ -z "$3" ] || echo "$3" > "$1/$2"'
    remote.script(host, note, staged, BEFORE, previous or "", doing=f"making {staged}")
    remote.write_file(host, f"{staged}/unit", wanted.unit.rstrip("\n"))
    remote.write_file(host, f"{staged}/release.json", _manifest(wanted))
    remote.script(host, 'mv -T "$1" "$2"', staged, f"{folder}/releases/{number}", doing=f"creating release {number}")
    return number, previous


# The closed port of an earlier unit, by its files.
CLOSED_PORT = f"grep -hos '{TEMPLATE}[0-9]*.service' {{}} | head -n 1"
# $3 the unit; $4 and $5 as below. It stops as it was started, before another file says how: with its own limits for
# requests in flight.
_STOP = f"""
closed=$({CLOSED_PORT.format('"$4/$3" "$5"')})
systemctl stop "$3" 2>/dev/null || true
"""
# $4 the folder of units, $5 the Quadlet file. Only one of the two kinds is installed: a unit would hide the one that
# podman generates.
_INSTALL = r"""
if grep -q '^\[Container\]$' "$1/current/unit"; then wanted="$5"; other="$4/$3"; else wanted="$4/$3"; other="$5"; fi
if [ -e "$other" ]; then
  [ "$other" = "$5" ] || systemctl --quiet disable "$3" 2>&1 || true; rm -f "$other"
fi
mkdir -p "$(dirname "$wanted")"
cp "$1/current/unit" "$wanted.new"; mv "$wanted.new" "$wanted"
systemctl daemon-reload; systemctl reset-failed "$3" 2>/dev/null || true
[ "$wanted" = "$5" ] || systemctl --quiet enable "$3" 2>&1
systemctl stop "$3"; systemctl start "$3" || true
[ -z "$closed" ] || grep -q "$closed" "$wanted" || systemctl stop "$closed"
"""


def quadlet_file(service: str) -> str:
    """The path of the Quadlet file of a service that runs from an image."""
    return f"{QUADLETS}/{layout.unit_name(service).removesuffix('.service')}.container"


def switch(host: Host, service: str, number: str) -> None:
    """Makes a staged release the current one. Returns once systemd has started it, before it answers.

    The one before it is stopped first, which takes as long as its requests in flight, within their limit.
    """
    folder, unit = layout.service_folder(service), layout.unit_name(service)
    point = 'rm -f "$1/stopped" "$1/.current"; ln -s "releases/$2" "$1/.current"; mv -T "$1/.current" "$1/current"\n'
    words, doing = (folder, number, unit, UNITS, quadlet_file(service)), f"switching {service} to release {number}"
    remote.script(host, _STOP + point + _INSTALL, *words, doing=doing, timeout=stop_limit(host))


def _go_back(
    host: Host, service: str, number: str, previous: str | None, problem: str, hint: str, check_earlier: CheckEarlier
) -> RigupError:
    """Rolls back to the previous release, or stops one that never answered; returns the error to raise."""
    if jobs.cancelled():
        return jobs.Cancelled(problem)
    try:
        if previous is None:
            remove_unit(host, service)
            return HostFailed(f"{problem}; release {number} was stopped; no earlier release to roll back to", hint)
        report(Progress(host.name, "service", text=f"rolling back to release {previous}"))
        switch(host, service, previous)
        kept = f"{layout.service_folder(service)}/releases/{previous}/release.json"
        check_earlier(host, read_manifest(remote.check_output(host, "cat", kept), kept))
    except (RigupError, Unreadable, *remote.CONNECTION_ERRORS) as second:
        also = f"{problem}; rolling back to release {previous or number} also failed: {second}"
        return HostFailed(also, getattr(second, "hint", None) or hint)
    return HostFailed(f"{problem}; rolled back to release {previous}, which answers", hint)


def remove_unit(host: Host, service: str) -> None:
    """Stops a service without a release to roll back to, and removes its unit."""
    folder, unit = layout.service_folder(service), layout.unit_name(service)
    closed = CLOSED_PORT.format('"$3/$2" "$4"')
    stop = f'systemctl stop "$2" $({closed}) || true; systemctl --quiet disable "$2" 2>&1 || true; '
    remove = 'systemctl reset-failed "$2" 2>/dev/null || true; rm -f "$1/current" "$3/$2" "$4"; systemctl daemon-reload'
    words = (folder, unit, UNITS, quadlet_file(service))
    remote.script(host, stop + remove, *words, doing=f"removing {unit}", timeout=stop_limit(host))


# $4 how many to keep: this one, those that it replaced one after the other, then the highest numbers. $6 the speed of
# its answer, or "".
_KEEP = (
    f"""{FUNCTIONS}
cd "$1/releases"; hold "$2" "$6"
"""
    + """
numbers=$(ls | grep -x '[0-9][0-9]*' | sort -rn)
for n in $numbers; do [ -e "$n/$3" ] || rm -rf "$n"; done
n="$2"; left="$4"; stay=' '
while [ "$left" -gt 0 ] && [ -n "$n" ] && [ -d "$n" ]; do
  stay="$stay$n "; left=$((left - 1)); n=$(cat "$n/$5" 2>/dev/null || true)
done
for n in $numbers; do
  [ -d "$n" ] || continue
  case "$stay" in *" $n "*) continue ;; esac
  if [ "$left" -gt 0 ]; then left=$((left - 1)); else rm -rf "$n"; fi
done
"""
)


def mark_healthy(host: Host, service: str, number: str) -> None:
    """Marks the current release as healthy, keeps a few such releases, and removes those that never answered."""
    words = (layout.service_folder(service), number, ANSWERED, str(KEPT), BEFORE, speed_of(host, service))
    said = remote.script(host, _KEEP, *words, doing=f"marking release {number} of {service} as healthy")
    warn_if_slower(host, service, said)
