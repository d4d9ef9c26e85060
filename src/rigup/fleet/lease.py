"""One apply at a time per host: a lease on the host, renewed while rigup lives, named to whoever comes second.

A lease that nobody renewed for EXPIRES_SECONDS is dead (its controller lost power or network). One whose controller is
this very machine, and whose process is gone, is dead at once. Any other can be broken; whoever had it finds out when it
renews it, and changes nothing more. Ages are counted in the host's uptime, so no clock that is wrong or set matters.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gevent

from rigup.errors import Refused
from rigup.fleet.fact_reading import harmless
from rigup.layout import RUNTIME
from rigup.operations import remote

EXPIRES_SECONDS = 60
RENEW_SECONDS = 15
FILE = f"{RUNTIME}/lease.json"
OURS, NOBODYS = "ours", ""
"""What `claim` says of a lease that still was this run's, and of a host that nobody has leased since it started."""

_TAKE = r"""
mkdir -p "$1"; exec 9>>"$1/lease.lock"; flock -w 10 9
uptime="$(cut -d. -f1 /proc/uptime)"
whose=; [ -s "$1/lease.lock" ] && whose="$(LC_ALL=C stat -c %i-%.Y "$1/lease.lock")"
if [ -f "$2" ]; then
  age=$(( uptime - $(cat "$1/lease.seen" 2>/dev/null || echo 0) )); found="$(cat "$2")"; whose=theirs
  if [ "$found" = "$4" ]; then whose=ours
  elif [ "$age" -lt "$3" ] && [ "$found" != "$5" ]; then printf '%s %s' "$age" "$found"; exit 0; fi
fi
echo "taken $whose"
umask 022; echo "$uptime" > "$1/lease.seen"; printf %s "$4" > "$2.new"; mv -f "$2.new" "$2"
echo taken > "$1/lease.lock"
"""
# says whose it is where it is not ours any more; a reboot takes all of this away, and that is no reason to stop.
# lease.lock is looked at first: it is written last
_RENEW = r"""
had=; [ -s "$1/lease.lock" ] && had=gone
found="$(cat "$1/lease.json" 2>/dev/null)"
if [ "$found" = "$2" ]; then cut -d. -f1 /proc/uptime > "$1/lease.seen"; else printf %s "${found:-$had}"; fi
"""
_GIVEN_BACK = "another rigup apply has been at work here since this run's lease ended"
_RELEASE = 'if [ "$(cat "$1" 2>/dev/null)" = "$2" ]; then touch "$(dirname "$1")/lease.lock"; rm -f "$1"; fi'


@dataclass(frozen=True)
class Holder:
    """Who holds a host: a person at a machine, and the process that the lease lives with. `since` is UTC."""

    who: str
    since: str
    machine: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"{self.who} (process {self.pid}) since {self.since}"


def stamp() -> str:
    """sh that prints something which changes whenever somebody takes the lease or gives it back; "" before the first.

    Where somebody has it, alive or not, a second word follows: "held".
    """
    return f"[ -s {RUNTIME}/lease.lock ] && LC_ALL=C stat -c %i-%.Y {RUNTIME}/lease.lock; [ -e {FILE} ] && echo held"


def myself() -> Holder:
    """This process."""
    machine = Path("/etc/machine-id")
    return Holder(
        f"{getpass.getuser()}@{socket.gethostname()}",
        time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        (machine.read_text().strip() if machine.exists() else "") or socket.gethostname(),
        os.getpid(),
        _started(os.getpid()),
    )


class Lease:
    """The lease of one host. `take` it before anything is changed, `release` it at the end; it renews itself.

    may_break: take it from whoever has it, once. broken: whose it was then. lost: how ours went to somebody else.
    """

    def __init__(self, host: Any, holder: Holder, may_break: bool = False) -> None:
        self.host, self.may_break = host, may_break
        self.text = json.dumps(asdict(holder))
        self.broken = self.lost = ""
        self._renewing: Any = None

    def take(self) -> str:
        """Raises Refused, naming the holder, when somebody else has this host. Returns the stamp from before it."""
        stamp = self.claim()
        self.may_break = False  # whoever breaks it from here on has been asked as this one was
        self._renewing = gevent.spawn(self._renew)
        return stamp

    def claim(self) -> str:
        """Writes the lease, at the first time or anew: after a lost connection, a long wait.

        Returns OURS or NOBODYS, else the stamp from before it: somebody else has had the host. Raises as `take` does.
        """
        answer = self._try(self.text)
        if not answer.startswith("taken"):
            age, _, text = answer.partition(" ")
            if self._is_dead(text):
                answer = self._try(text)
            elif self.may_break:
                self.broken = f"{_named(text)}, last sign of life {age} s ago"
                answer = self._try(text)
        age, _, text = answer.partition(" ")
        if age != "taken":
            raise Refused(
                f"{self.host.name}: another rigup apply is at work: {_named(text)}, last sign of life {age} s ago",
                f"wait for it; if it is dead its claim ends {EXPIRES_SECONDS} s after its last sign of life, "
                "or at once with rigup apply --break-lease",
            )
        self.lost = ""
        return text

    def claim_after_reboot(self) -> None:
        """As `claim`; that somebody else has had the host since it came back is noted for `check`."""
        if self.claim() not in (OURS, NOBODYS):
            self.lost = _GIVEN_BACK

    def check(self) -> None:
        """Raises Refused where somebody else has broken it, or had the host after it had ended."""
        if self.lost:
            raise Refused(f"{self.host.name}: {self.lost}", "wait for that run, then run this one again")

    def release(self, last: str = "true", stdin: str | None = None) -> None:
        """Gives the host back; quiet when the host cannot be reached any more.

        last: sh that is run there while it is still held, whatever comes of it. stdin: its standard input.
        """
        if self._renewing is None:
            return
        self._renewing.kill()
        self._renewing = None
        words = ("sh", "-c", f"( {last} ); {_RELEASE}", "rigup", FILE, self.text)
        with suppress(*remote.LOST):
            remote.ask(self.host, *words, stdin=stdin, timeout=15)

    def _try(self, dead: str) -> str:
        return remote.script(self.host, _TAKE, RUNTIME, FILE, str(EXPIRES_SECONDS), self.text, dead).strip()

    def _renew(self) -> None:
        while True:
            gevent.sleep(RENEW_SECONDS)
            try:
                self.renew()
            except remote.LOST:
                continue

    def renew(self) -> None:
        """A sign of life; finds out whether it is somebody else's by now."""
        words = ("sh", "-c", _RENEW, "rigup", RUNTIME, self.text)
        with harmless():
            found = remote.ask(self.host, *words, timeout=RENEW_SECONDS).stdout.strip()
        if found:
            self.lost = _GIVEN_BACK if found == "gone" else f"{_named(found)} has broken this run's lease"

    def _is_dead(self, text: str) -> bool:
        try:
            holder = Holder(**json.loads(text))
        except (ValueError, TypeError):
            return False
        return holder.machine == myself().machine and not _lives(holder)


def _named(text: str) -> str:
    try:
        return str(Holder(**json.loads(text)))
    except (ValueError, TypeError):
        return "a holder that cannot be read"


def _lives(holder: Holder) -> bool:
    """Whether a process of this machine is there; one of which /proc says nothing to us (hidepid) may be."""
    if started := _started(holder.pid):
        return started == holder.started
    try:
        os.kill(holder.pid, 0)
    except (ProcessLookupError, TypeError, OverflowError):
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
