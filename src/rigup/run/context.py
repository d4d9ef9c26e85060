"""The shared state of one run: the hosts with their plans, the results so far, and concurrent work."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import gevent
from pyinfra.api import State

from rigup.connection import pyinfra_internals
from rigup.connection.connections import Connections
from rigup.connection.handshake import Handshake
from rigup.connection.lease import Lease
from rigup.errors import HostFailed, HostUnreachable, RigupError
from rigup.facts.bounds import Unreadable
from rigup.host import Host
from rigup.operations.builds import builders_at_work
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.plan import Plan
from rigup.project.inventory import Project
from rigup.run.multinode.groups import NodeGroups
from rigup.run.result import TAKES_PART, Change, HostResult
from rigup.settings import HostSettings

Work = Callable[[Host], None]
Key = TypeVar("Key")
Found = TypeVar("Found")


@dataclass
class RunContext:
    """The state of one run; dictionaries are by host.

    read_only: the run never takes a lease, and continues without hosts that cannot be reached.
    groups: the node groups of the hosts. handshakes: of the hosts that were reached.
    compared: hosts that were compared with their plans. changed_elsewhere: hosts that another run changed after that,
    or that were rebooted, with the changes that are allowed there without showing them again.
    """

    project: Project
    plans: dict[str, tuple[Plan, ...]]
    settings: dict[str, HostSettings]
    connections: Connections
    read_only: bool = False
    groups: NodeGroups = field(default_factory=NodeGroups)
    results: dict[str, HostResult] = field(init=False)
    leases: dict[str, Lease] = field(default_factory=dict)
    handshakes: dict[str, Handshake] = field(default_factory=dict)
    compared: set[str] = field(default_factory=set)
    changed_elsewhere: dict[str, list[Change]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.results = {host.name: HostResult(host.name) for host in self.project.hosts}

    @property
    def state(self) -> State:
        """pyinfra's state of the run."""
        return self.connections.state

    def each(self, work: Work, names: Collection[str] | None = None) -> None:
        """Does `work` concurrently for all hosts that still take part; an error fails the host.

        names: these hosts only.
        """
        among = self.results.keys() if names is None else names
        hosts = [host for host in self.state.inventory if host.name in among]
        hosts = [host for host in hosts if self.results[host.name].state in TAKES_PART]
        hosts = self.groups.begin(self.results, hosts)
        pyinfra_internals.widen_pool(self.state, self.groups.largest)
        builders_at_work.begin(host.name for host in hosts)
        greenlets = [self.state.pool.spawn(self.guarded, work, host) for host in hosts]
        gevent.joinall(greenlets, raise_error=True)

    def guarded(self, work: Work, host: Host) -> None:
        """Does `work` for one host; an error fails the host."""
        result, began = self.results[host.name], time.monotonic()
        try:
            with pyinfra_internals.at_work_on(self.state, host):
                work(host)
        except jobs.Cancelled as error:
            result.fail("cancelled", error)
        except HostUnreachable as error:
            result.fail("unreachable", error)
        except RigupError as error:
            result.fail("failed", error)
        except Unreadable as error:
            result.fail("failed", HostFailed(f"{host.name}: {error}", error.hint))
        except remote.CONNECTION_ERRORS as error:
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
            result.fail("failed", HostFailed(f"{host.name}: connection lost ({what})", "run the same command again"))
        except Exception as error:
            logging.getLogger("rigup").debug("unexpected", exc_info=True)
            result.fail("failed", HostFailed(f"{host.name}: {type(error).__name__}: {error}"))
        finally:
            builders_at_work.end(host.name)
            self.groups.leave(host.name, result)
            report(Progress(host.name, "", ended=True))
            result.seconds += time.monotonic() - began


def ask_quietly(state: State, questions: Mapping[Key, Callable[[], Found | None]]) -> dict[Key, Found]:
    """What each question to a host returns, all asked concurrently; without those that fail or return None."""

    def quietly(question: Callable[[], Found | None]) -> Found | None:
        try:
            return question()
        except (RigupError, Unreadable, *remote.CONNECTION_ERRORS):
            return None

    asked = {key: state.pool.spawn(quietly, question) for key, question in questions.items()}
    gevent.joinall(list(asked.values()))
    return {key: greenlet.value for key, greenlet in asked.items() if greenlet.value is not None}
