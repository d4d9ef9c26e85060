"""Notices that the other end of a connection is gone: a host without power answers nothing, and closes nothing either.

TCP alone takes a quarter of an hour for that, and nothing at all tells a jump host. So sshd is asked every few seconds
for something that it must answer, as ssh does with ServerAliveInterval. A connection whose sshd stays silent is closed,
which ends every command on it, however long its own time limit is.
"""

from __future__ import annotations

from typing import Any

import gevent
from paramiko import SSHException

ASK_SECONDS = 10.0
DEAD_SECONDS = 60.0
"""How long sshd may take for an answer: it has one at once, unless its host is hardly alive."""
QUESTION = "keepalive@openssh.com"


def watch(transport: Any) -> None:
    """Asks sshd as long as the connection is open, and closes it after DEAD_SECONDS without an answer."""
    while transport.is_active():
        gevent.sleep(ASK_SECONDS)
        silent = gevent.Timeout(DEAD_SECONDS)
        try:
            with silent:
                transport.global_request(QUESTION)
        except gevent.Timeout as error:
            if error is not silent:
                raise
            transport.close()
        except (SSHException, OSError, EOFError):
            return  # it has ended meanwhile
