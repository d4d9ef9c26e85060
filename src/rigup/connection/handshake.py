"""The first command on a host: the remote user, the probe, and the facts of the last run. It only reads.

All in one command, since each costs two round trips. The part that needs root runs as root, or is skipped if sudo needs
a password; the handshake is then repeated (`sudo.shake_hands_as_root`).

The questions of the last run are on the host itself, as a script, so that any controlling machine can use them, and
only root on the host can decide what root runs there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyinfra.api.command import StringCommand

from rigup import layout
from rigup.connection import fact_batch
from rigup.connection.command_channel import Beginning, ShellSilent
from rigup.connection.fact_batch import CommandResult
from rigup.connection.lease import stamp
from rigup.connection.login_shell import MARK
from rigup.connection.pyinfra_internals import CommandOutput
from rigup.errors import HostFailed, HostUnreachable
from rigup.facts.bounds import Unreadable
from rigup.facts.probe_script import AWAITING_NVML, PROBE_SECONDS, RUN_PROBE
from rigup.facts.probe_script import definitions as probe_definitions
from rigup.host import Host, state_of

if TYPE_CHECKING:
    from rigup.facts.host import Probe

FILE = f"{layout.CACHE}/.questions"
SECONDS = PROBE_SECONDS + 60
SHELL_SECONDS = 20
"""For the login shell to begin a command: it reads its files, which may wait for a network or for ever."""

_LEASE, _WHO, _SUDO = "##rigup-lease##", "##rigup-who##", "##rigup-sudo##"

# The script itself comes over standard input, and the process that becomes root reads it. sudo is tried with the very
# program that every later command runs in: sudoers may name sh alone.
_AS_ROOT = f"""
uid=$(id -u); echo "{_WHO} $uid $(id -un)"
if [ "$uid" = 0 ]; then exec timeout {SECONDS} sh -s; fi
if ! command -v sudo >/dev/null; then echo "{_SUDO} none"; exec cat >/dev/null; fi
if said=$(LC_ALL=C sudo -k -n sh -c : 2>&1 </dev/null); then
  echo "{_SUDO} free"; exec sudo -H -n sh -c "exec timeout {SECONDS} sh -s"
fi
case $said in *"have a tty"*) echo "{_SUDO} tty" ;; *) echo "{_SUDO} password" ;; esac
exec cat >/dev/null
"""


class Handshake(NamedTuple):
    """The result of a handshake.

    sudo: "none", "free", "password" or "tty" (it works on a terminal only), "" for root. lease: its stamp as it was
    then. held: whether it was taken. answers: to the questions of the last run, by digest.
    """

    uid: str
    user: str
    sudo: str
    lease: str
    held: bool
    probe: Probe
    answers: dict[str, CommandResult]


@dataclass
class WaitingFor:
    """What a host's greeting waits for."""

    what: str = "SSH"

    def heard(self, line: str) -> None:
        """Notes how far the host is, by a line that it printed."""
        if MARK in line:
            self.what = "its answers"
        elif line.startswith(AWAITING_NVML):
            self.what = "NVML, which asks its driver"


def shake_hands(host: Host, **arguments: Any) -> Handshake:
    """Performs the handshake. Raises as running a command does, and HostUnreachable if the login shell does not answer.

    arguments: pyinfra's, as whom.
    """
    words = (
        StringCommand("timeout", str(SECONDS), "sh", "-s")
        if arguments.get("_sudo")
        else StringCommand("sh", "-c", shlex.quote(_AS_ROOT))
    )
    waiting = state_of(host, WaitingFor)
    waiting.what = "its login shell"
    beginning = Beginning(SHELL_SECONDS, waiting.heard)
    try:
        _, output = host.run_shell_command(
            words, _stdin=_script(), _timeout=SECONDS + 30, _beginning=beginning, **arguments
        )
    except ShellSilent:
        raise HostUnreachable(
            f"{host.name}: its login shell does not answer: no command began within {SHELL_SECONDS} s",
            f"see what it does: ssh {host.name} true; look at .bashrc and .profile there",
        ) from None
    try:
        return _read(output)
    except Unreadable as error:
        raise HostFailed(f"{host.name}: {error}", error.hint) from None


def _script() -> str:
    """NVML and questions are waited for at the same time; their standard error stays separate."""
    return f"""
{fact_batch.ASK}
{probe_definitions()}
echo '{_LEASE}' $({stamp()})
{{ if [ -O {FILE} ]; then . {FILE}; fi; }} </dev/null | {{ {RUN_PROBE} 2>/dev/null; cat; }}
"""


def _read(output: CommandOutput) -> Handshake:
    from rigup.facts.probe import parse  # slow imports happen while hosts are at work

    lines = output.stdout_lines
    said = {
        key: rest.strip() for key, _, rest in (line.partition(" ") for line in lines) if key in (_LEASE, _WHO, _SUDO)
    }
    uid, user = (*said.get(_WHO, "").split(), "", "")[:2]
    lease = said.get(_LEASE, "").split()
    held = lease[-1:] == ["held"]
    stamp = "".join(lease[: len(lease) - held])
    return Handshake(uid, user, said.get(_SUDO, ""), stamp, held, parse(lines), fact_batch.answers_in(output))


def remembering(questions: Iterable[str]) -> tuple[str, str]:
    """sh that stores these questions on the host, and its standard input."""
    new = f"{FILE}.new.$$"  # a run that changes nothing has no lease, so two of them may write at the same time
    keep = f'umask 077; mkdir -p -m 755 "$(dirname {FILE})"; cat > {new}; mv -f {new} {FILE}'
    return keep, fact_batch.lines(questions)
