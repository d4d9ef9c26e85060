"""Whether the hosts of a service reach one another where they must, found out by trying, before anything is changed.

For a few seconds each host listens where its part of the service will, unless that runs already, and the others try to
connect. Nothing is left on a host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

import gevent

import rigup.programs
from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.host import Probe
from rigup.fleet.fact_reading import harmless
from rigup.operations import remote
from rigup.operations.remote import LOST
from rigup.plan import Finding, Plan

if TYPE_CHECKING:
    from rigup.fleet.runner import Run

LISTEN_SECONDS = 30
CONNECT_SECONDS = 3
ANY = 0
"""A port of the kernel's choice, as engines open more of while they run."""

# $1 seconds; then address and port in turn, tried side by side. bash is there on every Debian; nothing is sent.
_CONNECT = r"""
seconds=$1; shift
try() {
  said=$(timeout "$seconds" bash -c ': 3<>"/dev/tcp/$0/$1"' "$1" "$2" 2>&1) && status=0 || status=$?
  case $status in
    0) echo "$1 $2 ok";;
    124) echo "$1 $2 no answer within $seconds s";;
    *) echo "$1 $2 $(printf '%s' "$said" | head -n 1 | sed 's/.*: //')";;
  esac
}
while [ $# -gt 1 ]; do try "$1" "$2" & shift 2; done
wait
"""


@dataclass(frozen=True)
class Need:
    """A port of `owner` that `caller` has to reach. what: for messages. port: ANY until something listens there."""

    owner: str
    caller: str
    port: int
    what: str


@dataclass(frozen=True)
class Listening:
    """What can be tried on a host. ports: as they are, by what they are needed as. process: what listens there."""

    ports: dict[int, int]
    process: str = ""


def check_reachable(run: Run, hosts: tuple[str, ...]) -> dict[str, tuple[Finding, ...]]:
    """What the hosts of a set, connected and by rank, do not reach of each other; by host, those that reach all not.

    Their plans must have addresses. Raises nothing: of a host that is lost meanwhile that is what is said.
    """
    trial = _Trial(run, hosts)
    try:
        trial.each(trial.listen)
        trial.each(trial.connect)
    finally:
        trial.each(trial.stop)
    return {name: tuple(findings) for name, findings in trial.findings.items() if findings}


def needed(plan: Plan) -> Iterator[Need]:
    """What the hosts of a service must reach of one another, by the plan of any of them."""
    name = [node.host for node in plan.nodes]
    for peer in plan.peer_ports:
        for caller in peer.callers:
            yield Need(name[peer.rank], name[caller], peer.port, peer.purpose)
    if plan.peer_traffic:
        for owner, other in permutations(name, 2):
            yield Need(owner, other, ANY, "of those that are opened as it runs")


class _Trial:
    """One trial among the hosts of a set."""

    def __init__(self, run: Run, hosts: tuple[str, ...]) -> None:
        services = [plan for plan in run.plans[hosts[0]] if plan.nodes]
        self.hosts = {host.name: host for host in run.state.inventory if host.name in hosts}
        self.probes = {name: run.results[name].probe or Probe() for name in hosts}
        self.addresses = {node.host: node.address for plan in services for node in plan.nodes}
        self.needs = [need for plan in services for need in needed(plan)]
        self.listening: dict[str, Listening] = {}
        self.findings: dict[str, list[Finding]] = {name: [] for name in hosts}

    def each(self, step: Callable[[str], None]) -> None:
        """Does it for every host, side by side."""

        def guarded(name: str) -> None:
            try:
                with harmless():
                    step(name)
            except (HostFailed, *LOST) as error:
                said = error.message if isinstance(error, HostFailed) else f"{type(error).__name__}: {error}"
                self._find(name, f"its network could not be tried: {said}", "run the same command again")

        gevent.joinall([gevent.spawn(guarded, name) for name in self.hosts], raise_error=True)

    def listen(self, name: str) -> None:
        """Has a host listen where its own services do not yet."""
        ports = sorted({need.port for need in self.needs if need.owner == name})
        own, others = self._taken(name, ports)
        for port, holder in others.items():
            what = f"port {port}, which the other hosts need of it, is in use by {holder}"
            self._find(name, what, "stop that, or give the service a join_port")
        todo = [port for port in ports if port not in own and port not in others]
        self.listening[name] = Listening({port: port for port in own})
        if not todo:
            return
        program = (Path(rigup.programs.__file__).parent / "listen_briefly.py").read_text()
        words = ("python3", "-IS", "-", str(LISTEN_SECONDS), self.addresses[name], *map(str, todo))
        said = remote.ask(self.hosts[name], *words, stdin=program)
        lines = [line.partition(" ") for line in said.stdout.splitlines()]
        process = next((rest for key, _, rest in lines if key == "pid"), "")
        if not process:
            raise HostFailed(said.last_line)
        ports_there = dict(self.listening[name].ports)
        for asked, (said_port, _, what) in zip(todo, lines, strict=False):
            if what == "ok":
                ports_there[asked] = int(said_port)
            else:
                self._find(name, f"port {asked} cannot be listened at: {what}", "on the host: ss -ltnp")
        self.listening[name] = Listening(ports_there, process)

    def connect(self, name: str) -> None:
        """Has a host try what it needs of the others."""
        wanted = self._wanted(name)
        words = [word for owner, port in wanted for word in (self.addresses[owner], str(port))]
        if not words:
            return
        said = remote.script(self.hosts[name], _CONNECT, str(CONNECT_SECONDS), *words, timeout=CONNECT_SECONDS + 60)
        answers = {(address, port): rest for address, port, rest in (line.split(" ", 2) for line in said.splitlines())}
        for (owner, port), what in wanted.items():
            address = self.addresses[owner]
            answer = answers.get((address, str(port)), "no word about it")
            if answer != "ok":
                where = f"{owner} at {address}, port {port} ({what})"
                hint = (
                    f"a firewall? on {owner}: let {self.addresses[name]} in; another network: lan_address, rig.network"
                )
                self._find(name, f"does not reach {where}: {answer}", hint)

    def stop(self, name: str) -> None:
        """Ends what listens."""
        if name in self.listening and self.listening[name].process:
            remote.ask(self.hosts[name], "kill", "-KILL", self.listening[name].process)

    def _taken(self, name: str, ports: list[int]) -> tuple[set[int], dict[int, str]]:
        """Of these ports, those at which rigup's own services listen, and those that somebody else has, with who."""
        probe = self.probes[name]
        units = {layout.unit_name(service) for service in probe.current}
        there = [each for each in probe.listeners if each.port in ports]
        own = {each.port for each in there if each.unit in units}
        others = {each.port: each.unit or each.program or "another program" for each in there if each.port not in own}
        return own, others

    def _wanted(self, name: str) -> dict[tuple[str, int], str]:
        """What a host is to try, host and port as it is, with what it is for."""
        wanted: dict[tuple[str, int], str] = {}
        for need in self.needs:
            there = self.listening.get(need.owner, Listening({})).ports
            if need.caller == name and need.port in there:
                wanted.setdefault((need.owner, there[need.port]), need.what)
        return wanted

    def _find(self, name: str, message: str, hint: str) -> None:
        self.findings[name].append(Finding(rule="host-network", message=message, hint=hint))
