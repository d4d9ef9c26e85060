"""Connections to the hosts of a run, and the result of each handshake.

Connecting begins as soon as the inventory is read, while this machine still imports and plans. It only reads, and its
result is dropped if the plans are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import gevent
from gevent.event import Event
from gevent.lock import Semaphore

from rigup.connection import host_keys, pyinfra_internals
from rigup.connection.connect_errors import connect_error
from rigup.connection.connector import RigupSSHConnector
from rigup.connection.handshake import Handshake, WaitingFor
from rigup.connection.proxy_command import watch_proxy_commands
from rigup.connection.pyinfra_internals import ConnectError
from rigup.connection.ssh_config import connection_data
from rigup.connection.sudo import shake_hands_as_root
from rigup.host import Host, state_of
from rigup.operations.primitives.progress import Progress, report
from rigup.toolkit import toolkit_root

CONNECT_TIMEOUT_SECONDS = 10
LEAVE_SECONDS = 5
PARALLEL_HOSTS = 50
PATIENCE_SECONDS = 0.06
SLOW_SECONDS = 2.0
"""After which it is said what a host is waited for."""


class Connections:
    """The connections to the hosts of a run, by name with their data, and pyinfra's state of that run."""

    def __init__(self, hosts: Mapping[str, dict[str, Any]], sudo_password: str | None) -> None:
        logging.getLogger("pyinfra").addHandler(logging.NullHandler())
        logging.getLogger("pyinfra").propagate = False
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)
        host_keys.check_host_keys()
        watch_proxy_commands()
        self.sudo_password = sudo_password
        names = [(name, host_keys.with_policy(name, connection_data(name, data))) for name, data in hosts.items()]
        parallel = min(PARALLEL_HOSTS, len(names))
        self.state = pyinfra_internals.new_state(
            names, RigupSSHConnector, CONNECT_TIMEOUT_SECONDS, parallel, toolkit_root()
        )
        self._begun: dict[str, Any] = {}
        self._turns = Semaphore(parallel)  # the pool's own spawn would block the caller until there is room
        self._reached = {host.name: Event() for host in self.state.inventory}

    def begin(self) -> None:
        """Starts connecting to every host, and returns when all are connected or after PATIENCE_SECONDS.

        A connection begins with short steps on either side, each of which would wait for what this machine does next.
        What goes wrong is raised by `handshake`.
        """
        pyinfra_internals.set_stage(self.state, "connect")
        self._begun = {host.name: gevent.spawn(self._outcome_in_turn, host) for host in self.state.inventory}
        gevent.wait(list(self._reached.values()), timeout=PATIENCE_SECONDS)

    def handshake(self, host: Host) -> Handshake:
        """What the greeting brings back: of the one that was begun, else of one that is said now.

        Raises HostUnreachable, or one of CONNECTION_ERRORS if the connection is lost meanwhile.
        """
        begun = self._begun.pop(host.name, None)
        telling = gevent.spawn(_tell, host)
        try:
            outcome: Handshake | Exception = begun.get() if begun is not None else self._outcome(host)
        finally:
            telling.kill()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def leave(self) -> None:
        """Ends every connection, and every attempt at one.

        A running handshake ends with its connection: killed, it would leave pyinfra's readers behind, and what they
        hold complains when the interpreter exits.
        """
        speaking = [self._begun[host.name] for host in self.state.inventory if self._speaks(host)]
        for host in self.state.inventory:
            host.connector.disconnect()
            if host.connector.client is not None:
                host.connector.client.close()
        gevent.joinall(speaking, timeout=LEAVE_SECONDS)
        gevent.killall(list(self._begun.values()))

    def _speaks(self, host: Host) -> bool:
        client = host.connector.client
        return host.name in self._begun and client is not None and client.get_transport() is not None

    def _outcome_in_turn(self, host: Host) -> Handshake | Exception:
        with self._turns:
            return self._outcome(host)

    def _outcome(self, host: Host) -> Handshake | Exception:
        """What a greenlet ends with: gevent prints the traceback of one that raises."""
        try:
            return self._shake_hands(host)
        except Exception as error:
            return error
        finally:
            self._reached[host.name].set()

    def _shake_hands(self, host: Host) -> Handshake:
        try:
            pyinfra_internals.reach(self.state, host)
        except ConnectError as error:
            raise connect_error(host.name, str(error)) from None
        except Exception as error:  # paramiko lets some key errors through as they are
            raise connect_error(host.name, f"{type(error).__name__}: {error}") from None
        self._reached[host.name].set()
        return shake_hands_as_root(host, self.sudo_password)


def _tell(host: Host) -> None:
    """Reports what a host that takes long to greet is waited for."""
    while True:
        gevent.sleep(SLOW_SECONDS)
        report(Progress(host.name, "connect", text=f"waiting for {state_of(host, WaitingFor).what}"))
