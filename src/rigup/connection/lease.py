"""One apply at a time per host: a lease on the host, renewed while rigup runs, and shown to any second run.

A lease that was not renewed for EXPIRES_SECONDS is dead (its controller lost power or network). A lease of this machine
whose process is gone is dead at once. Any other can be broken; its holder notices at the next heartbeat and changes
nothing more. Ages are counted in the host's uptime, so wrong or adjusted clocks do not matter.

It is in a folder that only root may enter: anyone who could open its lock file could hold it for ever. An invalid lease
(an empty file, a heartbeat from the future) is replaced.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import gevent

from rigup.connection.fact_cache import read_only
from rigup.errors import HostFailed, Refused, RigupError
from rigup.host import Host
from rigup.layout import RUNTIME
from rigup.operations.primitives import remote

EXPIRES_SECONDS = 60
RENEW_SECONDS = 15
MOST_PID = 2**31
MOST_LETTERS = 200
FOLDER = f"{RUNTIME}/lease"
FILE = f"{FOLDER}/lease.json"
OURS, NOBODYS = "ours", ""
"""What `claim` says of a lease that still was this run's, and of a host that nobody has leased since it started."""

# $1 folder, $2 file, $3 seconds to live, $4 our text, $5 the text of a lease that is dead, $6 what to break it with.
# The lease is ours once it is written; cat, unlike the shell, says why it cannot write: no space left on device.
_TAKE = r"""
above="${1%/*}"; umask 022; mkdir -p "$above"; chmod go-w "$above"; umask 077
if [ "$6" ]; then rm -rf "$1"; fi
mkdir -p "$1"; chmod 700 "$1"
exec 9>>"$1/lease.lock"; flock -w 10 9 || { echo busy; exit 0; }
if [ -f "$above/lease.json" ]; then  # where it was before the folder
  [ -e "$2" ] || [ "$6" ] || { mv -f "$above/lease.json" "$2"; mv -f "$above/lease.seen" "$1/lease.seen" || :; }
  rm -f "$above/lease.json" "$above/lease.seen" "$above/lease.lock"
fi
uptime="$(cut -d. -f1 /proc/uptime)"
whose="$6"; [ -s "$1/lease.lock" ] && whose="$(LC_ALL=C stat -c %i-%.Y "$1/lease.lock")"
if [ -f "$2" ]; then
  age=$3; seen="$(head -c 20 "$1/lease.seen" 2>/dev/null || :)"
  case "$seen" in '' | *[!0-9]* | 0?* | ??????????*) ;; *) age=$(( uptime - seen )) ;; esac
  [ "$age" -ge 0 ] || age=$3
  found="$(head -c 4096 "$2")"; whose=theirs
  if [ "$found" = "$4" ]; then whose=ours
  elif [ "$age" -lt "$3" ] && [ "$found" != "$5" ]; then printf '%s %s' "$age" "$found"; exit 0; fi
fi
[ -f "$2" ] || rm -rf "$2"
echo "$uptime" | cat > "$1/lease.seen"; printf %s "$4" | cat > "$2.new"; mv -f "$2.new" "$2"
echo taken | cat > "$1/lease.lock"; echo "taken $whose"
"""
# prints the holder if it is no longer ours; a reboot removes all of this, which is not a reason to stop.
# lease.lock is looked at first: it is written last
_RENEW = r"""
had=; [ -s "$1/lease.lock" ] && had=gone
found="$(head -c 4096 "$1/lease.json" 2>/dev/null)"
if [ "$found" = "$2" ]; then cut -d. -f1 /proc/uptime > "$1/lease.seen"; else printf %s "${found:-$had}"; fi
"""
BUSY, _BROKEN = "busy", "broken"
_GIVEN_BACK = "another rigup run changed this host after this run's lease ended"
_RELEASE = 'if [ "$(cat "$1" 2>/dev/null)" = "$2" ]; then touch "$(dirname "$1")/lease.lock"; rm -f "$1"; fi'


class Holder(NamedTuple):
    """The holder of a lease: a user at a machine, and the process that renews it. `since` is UTC."""

    who: str
    since: str
    machine: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"{self.who} (process {self.pid}) since {self.since}"

    @classmethod
    def parse(cls, text: str) -> Holder | None:
        """From the text of a lease file; None if it is not a lease."""
        try:
            said = json.loads(text)
            holder = cls(**said)
        except (ValueError, TypeError, RecursionError):
            return None
        texts = (holder.who, holder.since, holder.machine, holder.started)
        well = all(isinstance(each, str) and len(each) <= MOST_LETTERS and each.isprintable() for each in texts)
        return holder if well and type(holder.pid) is int and 0 < holder.pid < MOST_PID else None


def stamp() -> str:
    """sh that prints a stamp which changes whenever the lease is taken or released; "" before the first.

    If the lease is held, alive or not, a second word follows: "held".
    """
    return f"[ -s {FOLDER}/lease.lock ] && LC_ALL=C stat -c %i-%.Y {FOLDER}/lease.lock; [ -e {FILE} ] && echo held"


def myself() -> Holder:
    """This process."""
    machine = Path("/etc/machine-id")
    return Holder(
        f"{_user()}@{socket.gethostname()}",
        time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        (machine.read_text().strip() if machine.exists() else "") or socket.gethostname(),
        os.getpid(),
        _started(os.getpid()),
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user that no list of users knows
        return str(os.getuid())


class Lease:
    """The lease of one host. Call `take` before any change and `release` at the end; it renews itself.

    may_break: take it from another holder, once. broken: that holder. lost: how this run lost the lease.
    """

    def __init__(self, host: Host, holder: Holder, may_break: bool = False) -> None:
        self.host, self.may_break = host, may_break
        self.text = json.dumps(holder._asdict())
        self.broken = self.lost = ""
        self._renewing: Any = None

    def take(self) -> str:
        """Takes the lease and returns the stamp from before it. Raises Refused, naming the holder, if it is held."""
        stamp = self.claim()
        self.may_break = False  # a run that breaks it from here on was asked as this one was
        self._renewing = gevent.spawn(self._renew)
        return stamp

    def claim(self) -> str:
        """Writes the lease, the first time or again after a lost connection or a long wait.

        Returns OURS or NOBODYS, else the previous stamp: another run has held the host. Raises as `take` does.
        """
        answer = self._first_try()
        if not answer.startswith("taken"):
            age, _, text = answer.partition(" ")
            holder = Holder.parse(text)
            if answer != BUSY and holder is None:
                answer = self._try(breaking=_BROKEN)
            elif holder and _is_dead(holder):
                answer = self._try(dead=text)
            elif self.may_break:
                self.broken = f"{holder}, last heartbeat {age} s ago" if holder else "a run that was taking the lease"
                answer = self._try(breaking=_BROKEN)
        age, _, text = answer.partition(" ")
        if answer == BUSY:
            raise Refused(
                f"{self.host.name}: another rigup run is taking the lease on this host",
                "run the same command again in a minute; if this continues, use rigup apply --break-lease",
            )
        if age != "taken":
            raise Refused(
                f"{self.host.name}: locked by another rigup run: {_named(text)}, last heartbeat {age} s ago",
                f"wait, or use rigup apply --break-lease; an abandoned lease expires {EXPIRES_SECONDS} s after its "
                "last heartbeat",
            )
        self.lost = ""
        return text

    def claim_after_reboot(self) -> None:
        """Like `claim`; if another run has held the host since the reboot, `check` raises."""
        if self.claim() not in (OURS, NOBODYS):
            self.lost = _GIVEN_BACK

    def check(self) -> None:
        """Raises Refused if another run broke the lease, or held the host after it expired."""
        if self.lost:
            raise Refused(f"{self.host.name}: {self.lost}", "wait for that run, then run this one again")

    def release(self, last: str = "true", stdin: str | None = None) -> None:
        """Releases the lease; silent if the host is no longer reachable.

        last: sh to run there while it is still held; its result is ignored. stdin: its standard input.
        """
        if self._renewing is None:
            return
        self._renewing.kill()
        self._renewing = None
        words = ("sh", "-c", f"( {last} ); {_RELEASE}", "rigup", FILE, self.text)
        with suppress(*remote.CONNECTION_ERRORS, RigupError):
            remote.run(self.host, *words, stdin=stdin, timeout=15)

    def _first_try(self) -> str:
        """Like `_try`; unusable lease files are removed if the lease may be broken."""
        try:
            return self._try()
        except HostFailed:
            if not self.may_break:
                raise
        self.broken = "an unreadable lease"
        return self._try(breaking=_BROKEN)

    def _try(self, dead: str = "", breaking: str = "") -> str:
        """dead: the text of a lease to ignore. breaking: take it in any case; returned as its holder."""
        words = (FOLDER, FILE, str(EXPIRES_SECONDS), self.text, dead, breaking)
        return remote.script(self.host, _TAKE, *words, doing=f"taking the lease in {FOLDER}").strip()

    def _renew(self) -> None:
        while True:
            gevent.sleep(RENEW_SECONDS)
            try:
                self.renew()
            except (*remote.CONNECTION_ERRORS, RigupError):
                continue

    def renew(self) -> None:
        """Sends a heartbeat; notices if another run has taken the lease."""
        words = ("sh", "-c", _RENEW, "rigup", FOLDER, self.text)
        with read_only():
            found = remote.run(self.host, *words, timeout=RENEW_SECONDS).stdout.strip()
        if found:
            self.lost = _GIVEN_BACK if found == "gone" else f"{_named(found)} broke this run's lease"


def _is_dead(holder: Holder) -> bool:
    return holder.machine == myself().machine and not _lives(holder)


def _named(text: str) -> str:
    return str(Holder.parse(text) or "an unknown holder")


def _lives(holder: Holder) -> bool:
    """Whether a process of this machine exists; one that /proc hides (hidepid) may exist."""
    if started := _started(holder.pid):
        return started == holder.started
    try:
        os.kill(holder.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _started(pid: int) -> str:
    """When a process of this machine started, in clock ticks since boot; empty when there is none (or no /proc)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""
