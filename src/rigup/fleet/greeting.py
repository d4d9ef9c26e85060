"""The first thing said to a host: who are we there, what is it, and what it was asked last time. It only reads.

All in one command, since each costs two round trips. The part that needs root runs as root, or not at all where sudo
wants a password; it is then said again (`sudo.settle`).

The questions of last time lie on the host itself, as the script that asks them, so that any controlling machine can
use them, and nobody but root there can say what root runs there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyinfra.api.command import StringCommand
from pyinfra.connectors.util import CommandOutput

from rigup import layout
from rigup.facts.probe_script import PROBE_SECONDS
from rigup.facts.probe_script import definitions as probe_definitions
from rigup.facts.probe_script import run as probe_run
from rigup.fleet import early_answers, fact_batch
from rigup.fleet.fact_batch import Answer
from rigup.fleet.lease import stamp

if TYPE_CHECKING:
    from rigup.facts.host import Probe

FILE = f"{layout.CACHE}/.questions"
SECONDS = PROBE_SECONDS + 60

MARKS = _LEASE, _WHO, _SUDO = "##rigup-lease##", "##rigup-who##", "##rigup-sudo##"

# the script itself comes over standard input, and whoever is root in the end reads it
_AS_ROOT = f"""
uid=$(id -u); echo "{_WHO} $uid $(id -un)"
if [ "$uid" = 0 ]; then exec timeout {SECONDS} sh -s; fi
if ! command -v sudo >/dev/null; then echo "{_SUDO} none"; exec cat >/dev/null; fi
if sudo -k -n true 2>/dev/null; then echo "{_SUDO} free"; exec sudo -H -n timeout {SECONDS} sh -s; fi
echo "{_SUDO} password"; exec cat >/dev/null
"""


@dataclass(frozen=True)
class Greeting:
    """What came back.

    sudo: "none", "free" or "password", "" for root. lease: its stamp as it was then. held: whether somebody had it.
    answers: to the questions of last time, services: to those that services were asked, by digest.
    """

    uid: str
    user: str
    sudo: str
    lease: str
    held: bool
    probe: Probe
    answers: dict[str, Answer]
    services: dict[str, Answer]

    @property
    def is_root(self) -> bool:
        """Whether what needs root has been done."""
        return self.uid == "0" or self.sudo == "free"


def greet(host: Any, services: bool = False, **arguments: Any) -> Greeting:
    """Says it. Raises as running a command does.

    services: whether they are asked too (`early_answers`). arguments: pyinfra's, as whom.
    """
    words = (
        StringCommand("timeout", str(SECONDS), "sh", "-s")
        if arguments.get("_sudo")
        else StringCommand("sh", "-c", shlex.quote(_AS_ROOT))
    )
    _, output = host.run_shell_command(words, _stdin=_script(services), _timeout=SECONDS + 30, **arguments)
    return _read(output)


def _script(services: bool) -> str:
    """NVML, services and questions are waited for at the same time; what these say on standard error stays apart."""
    probe = probe_run('"$remembered"' if services else "")
    return f"""
{fact_batch.ASK}
{probe_definitions()}
remembered=; if [ -O {FILE} ]; then remembered={FILE}; fi
echo '{_LEASE}' $({stamp()})
{{ [ -z "$remembered" ] || . "$remembered"; }} </dev/null | {{ {probe} 2>/dev/null; cat; }}
"""


def _read(output: CommandOutput) -> Greeting:
    from rigup.facts.probe import parse  # what takes time to import is imported while hosts are at work

    lines = output.stdout_lines
    said = {
        key: rest.strip() for key, _, rest in (line.partition(" ") for line in lines) if key in (_LEASE, _WHO, _SUDO)
    }
    uid, user = (*said.get(_WHO, "").split(), "", "")[:2]
    lease = said.get(_LEASE, "").split()
    held = lease[-1:] == ["held"]
    stamp = "".join(lease[: len(lease) - held])
    answers, services = fact_batch.answers_in(output), early_answers.heard(lines)
    return Greeting(uid, user, said.get(_SUDO, ""), stamp, held, parse(lines), answers, services)


def remembering(questions: Iterable[str], to_services: Iterable[str] = ()) -> tuple[str, str]:
    """sh that has the host remember these questions, and its standard input.

    to_services: as `early_answers.to_remember` makes them.
    """
    new = f"{FILE}.new.$$"  # whoever changes nothing has no lease, and two of those may write at the same time
    keep = f'umask 077; mkdir -p -m 755 "$(dirname {FILE})"; cat > {new}; mv -f {new} {FILE}'
    return keep, "".join(to_services) + fact_batch.lines(questions)
