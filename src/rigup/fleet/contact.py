"""Reaching the hosts of a run: connections, and what the greeting of each brings back.

It begins as soon as the inventory is read, while this machine still imports and plans: it only reads, and if the plans
are refused then nobody hears of it.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import gevent
from gevent.event import Event
from gevent.lock import Semaphore
from pyinfra.api import Config, Inventory, State, arguments
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.state import StateStage

from rigup.fleet.greeting import Greeting
from rigup.fleet.host_keys import keep_pyinfra_from_asking, name_jump_hosts_as_ssh_does
from rigup.fleet.inventory import Project, toolkit_root
from rigup.fleet.ssh import CarefulSSH
from rigup.fleet.ssh_config import connection_data
from rigup.fleet.sudo import greet_as_root
from rigup.fleet.unreachable import explain

CONNECT_TIMEOUT_SECONDS = 10
LEAVE_SECONDS = 5
PARALLEL_HOSTS = 50
PATIENCE_SECONDS = 0.02


class Contact:
    """The connections to all hosts of a project, and pyinfra's state of the run that they are for.

    services: whether those that a host has are asked with its greeting what they were asked last time.
    """

    def __init__(self, project: Project, sudo_password: str | None, services: bool = False) -> None:
        logging.getLogger("pyinfra").addHandler(logging.NullHandler())
        logging.getLogger("pyinfra").propagate = False
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)
        keep_pyinfra_from_asking()
        arguments.get_type_hints = cache(arguments.get_type_hints)  # pyinfra works them out anew for each operation
        name_jump_hosts_as_ssh_does()
        self.sudo_password, self.services = sudo_password, services
        names = [(host.name, connection_data(host.name, host.data)) for host in project.hosts]
        inventory = Inventory((names, {}))
        for index, host in enumerate(inventory):
            host.connector_cls = CarefulSSH
            # pyinfra's API tells operations apart by position alone; this makes the host part of it
            host.loop_position = [index]
            # where pyinfra looks for some thirty arguments of each operation: all there is, without its empty layers
            own = inventory.get_host_data(host.name)
            host.data.__dict__["datas"] = (host.data.override_datas, own, host.get_deploy_data)
        parallel = min(PARALLEL_HOSTS, len(names))
        self.state = State(inventory, Config(CONNECT_TIMEOUT=CONNECT_TIMEOUT_SECONDS, PARALLEL=parallel))
        self.state.cwd = str(toolkit_root())
        self._begun: dict[str, Any] = {}
        self._turns = Semaphore(parallel)  # the pool's own would have whoever begins wait for a place
        self._reached = {host.name: Event() for host in inventory}

    def begin(self) -> None:
        """Starts to reach every host, and returns when all are connected or after PATIENCE_SECONDS.

        A connection begins with short steps on either side, each of which would wait for what this machine does next.
        What goes wrong is raised by `greeting`.
        """
        self.state.set_stage(StateStage.Connect)
        self._begun = {host.name: gevent.spawn(self._outcome_in_turn, host) for host in self.state.inventory}
        gevent.wait(list(self._reached.values()), timeout=PATIENCE_SECONDS)

    def greeting(self, host: Any) -> Greeting:
        """What the greeting brings back: of the one that was begun, else of one that is said now.

        Raises Unreachable, or one of LOST when the connection goes while it is said.
        """
        begun = self._begun.pop(host.name, None)
        outcome: Greeting | Exception = begun.get() if begun is not None else self._outcome(host)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def leave(self) -> None:
        """Ends every connection, and every attempt at one.

        A greeting that is being said ends with its connection: killed, it would leave pyinfra's readers of the answer
        behind, and what they hold complains when the interpreter takes it down.
        """
        speaking = [self._begun[host.name] for host in self.state.inventory if self._speaks(host)]
        for host in self.state.inventory:
            host.connector.disconnect()
            if host.connector.client is not None:
                host.connector.client.close()
        gevent.joinall(speaking, timeout=LEAVE_SECONDS)
        gevent.killall(list(self._begun.values()))

    def _speaks(self, host: Any) -> bool:
        client = host.connector.client
        return host.name in self._begun and client is not None and client.get_transport() is not None

    def _outcome_in_turn(self, host: Any) -> Greeting | Exception:
        with self._turns:
            return self._outcome(host)

    def _outcome(self, host: Any) -> Greeting | Exception:
        """What a greenlet ends with: gevent prints the traceback of one that raises."""
        try:
            return self._greet(host)
        except Exception as error:
            return error
        finally:
            self._reached[host.name].set()

    def _greet(self, host: Any) -> Greeting:
        try:
            host.connect(show_errors=False, raise_exceptions=True)
        except ConnectError as error:
            raise explain(host.name, str(error)) from None
        except Exception as error:  # paramiko lets some key errors through as they are
            raise explain(host.name, f"{type(error).__name__}: {error}") from None
        self.state.activate_host(host)
        self._reached[host.name].set()
        return greet_as_root(host, self.sudo_password, self.services)
