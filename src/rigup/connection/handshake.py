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
from typing import TYPE_CHECKING, Any

from pyinfra.api.command import StringCommand

from rigup import layout
from rigup.connection import fact_batch
from rigup.connection.fact_batch import CommandResult
from rigup.connection.lease import stamp
from rigup.connection.pyinfra_internals import CommandOutput
from rigup.errors import HostFailed
from rigup.facts.bounds import Unreadable
from rigup.facts.probe_script import PROBE_SECONDS, RUN_PROBE
from rigup.facts.probe_script import definitions as probe_definitions
from rigup.host import Host

if TYPE_CHECKING:
    from rigup.facts.host import Probe

FILE = f"{layout.CACHE}/.questions"
SECONDS = PROBE_SECONDS + 60

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


@dataclass(frozen=True)
class Handshake:
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


def shake_hands(host: Host, **arguments: Any) -> Handshake:
    """Performs the handshake. Raises as running a command does.

    arguments: pyinfra's, as whom.
    """
    words = (
        StringCommand("timeout", str(SECONDS), "sh", "-s")
        if arguments.get("_sudo")
        else StringCommand("sh", "-c", shlex.quote(_AS_ROOT))
    )
    _, output = host.run_shell_command(words, _stdin=_script(), _timeout=SECONDS + 30, **arguments)
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
