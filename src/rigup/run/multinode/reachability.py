"""Tests whether the hosts of a service can reach one another on its ports, before anything is changed.

For a few seconds each host listens on the ports of its part of the service, unless that part already runs, and the
others try to connect. Nothing is left on a host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

import gevent

from rigup import layout
from rigup.connection.fact_cache import read_only
from rigup.errors import HostFailed
from rigup.facts.bounds import count
from rigup.facts.host import Probe
from rigup.facts.probe import read_probe
from rigup.operations.primitives import remote
from rigup.operations.primitives.remote import CONNECTION_ERRORS
from rigup.plan import Finding, Plan
from rigup.programs import program_file
from rigup.run.context import RunContext

LISTEN_SECONDS = 30
CONNECT_SECONDS = 3
IN_USE = "Address already in use"
"""EADDRINUSE in the words of a host's C library."""
ANY = 0
"""A port that the kernel chooses, as engines open such ports while they run."""

# $1 seconds; then addresses and ports, tried concurrently. Every Debian has bash; no data is sent.
_CONNECT = r"""
seconds=$1; shift
try() {
  output=$(timeout "$seconds" bash -c ': 3<>"/dev/tcp/$0/$1"' "$1" "$2" 2>&1) && status=0 || status=$?
  case $status in
    0) echo "$1 $2 ok";;
    124) echo "$1 $2 no answer within $seconds s";;
    *) echo "$1 $2 $(printf '%s' "$output" | head -n 1 | sed 's/.*: //')";;
  esac
}
while [ $# -gt 1 ]; do try "$1" "$2" & shift 2; done
wait
"""


@dataclass(frozen=True)
class PortNeed:
    """A port of `owner` that `caller` must reach. what: its purpose. port: ANY for one that the kernel chooses."""

    owner: str
    caller: str
    port: int
    what: str


def check_reachable(
    context: RunContext, hosts: tuple[str, ...], addresses: Mapping[str, str]
) -> dict[str, tuple[Finding, ...]]:
    """The ports that hosts of a node group cannot reach on one another; by host, without hosts that reach all.

    hosts: by rank, connected. addresses: of each. Does not raise: a host that is lost meanwhile gets a finding.
    """
    trial = _Trial(context, hosts, addresses)
    try:
        trial.each(trial.listen)
        trial.each(trial.connect)
    finally:
        trial.each(trial.stop)
    return {name: tuple(findings) for name, findings in trial.findings.items() if findings}


def needed(plan: Plan) -> Iterator[PortNeed]:
    """The ports that the hosts of a service must reach on one another, by the plan of any of them."""
    name = [node.host for node in plan.nodes]
    for peer in plan.peer_ports:
        for caller in peer.callers:
            yield PortNeed(name[peer.rank], name[caller], peer.port, peer.purpose)
    if plan.peer_traffic:
        for owner, other in permutations(name, 2):
            yield PortNeed(owner, other, ANY, "opened while it runs")


class _Trial:
    """One trial among the hosts of a node group.

    listening: by host, the actual port of each needed port that can be tested. listeners: by host, a process id.
    """

    def __init__(self, context: RunContext, hosts: tuple[str, ...], addresses: Mapping[str, str]) -> None:
        services = [plan for plan in context.plans[hosts[0]] if plan.nodes]
        self.hosts = {host.name: host for host in context.state.inventory if host.name in hosts}
        self.probes = {name: context.results[name].probe or Probe() for name in hosts}
        self.addresses = addresses
        self.needs = [need for plan in services for need in needed(plan)]
        self.listening: dict[str, dict[int, int]] = {}
        self.listeners: dict[str, str] = {}
        self.findings: dict[str, list[Finding]] = {name: [] for name in hosts}

    def each(self, step: Callable[[str], None]) -> None:
        """Does a step for every host concurrently."""

        def guarded(name: str) -> None:
            try:
                with read_only():
                    step(name)
            except (HostFailed, ValueError, *CONNECTION_ERRORS) as error:
                problem = error.message if isinstance(error, HostFailed) else f"{type(error).__name__}: {error}"
                self._find(name, f"its network could not be tested: {problem}", hint="run the same command again")

        gevent.joinall([gevent.spawn(guarded, name) for name in self.hosts], raise_error=True)

    def listen(self, name: str) -> None:
        """Makes a host listen on the ports on which its own services do not listen yet."""
        ports = sorted({need.port for need in self.needs if need.owner == name})
        listening = self.listening[name] = {}
        if not (todo := self._free(name, ports, self.probes[name])):
            return
        program = program_file("listen_briefly.py").read_text()
        words = ("python3", "-IS", "-", str(LISTEN_SECONDS), self.addresses[name], *map(str, todo))
        output = remote.run(self.hosts[name], *words, stdin=program)
        lines = [line.partition(" ") for line in output.stdout.splitlines()]
        process = next((rest for key, _, rest in lines if key == "pid"), "")
        if not process.isdigit():  # the number is passed to kill at the end
            raise HostFailed(output.last_line)
        self.listeners[name] = process
        taken = []
        for asked, (printed_port, _, what) in zip(todo, lines, strict=False):
            if what == "ok":
                listening[asked] = count(printed_port, 65535)
            elif what == IN_USE:
                taken.append(asked)
            else:
                self._cannot_listen(name, asked, what)
        if taken:  # since the probe, as by a service that starts with its host
            for port in self._free(name, taken, read_probe(self.hosts[name])):
                self._cannot_listen(name, port, IN_USE)

    def connect(self, name: str) -> None:
        """Makes a host connect to the ports that it needs on the others."""
        wanted = self._wanted(name)
        words = [word for owner, port in wanted for word in (self.addresses[owner], str(port))]
        if not words:
            return
        output = remote.script(self.hosts[name], _CONNECT, str(CONNECT_SECONDS), *words, timeout=CONNECT_SECONDS + 60)
        answers = {
            (words[0], words[1]): words[2]
            for words in (line.split(" ", 2) for line in output.splitlines())
            if len(words) == 3
        }
        for (owner, port), what in wanted.items():
            address = self.addresses[owner]
            answer = answers.get((address, str(port)), "no result")
            if answer != "ok":
                where = f"{owner} at {address}, port {port} ({what})"
                allow = f"allow {self.addresses[name]} in the firewall of {owner}"
                hint = f"{allow}, or choose another network: lan_address, rig.network"
                self._find(name, f"cannot reach {where}: {answer}", hint=hint)

    def stop(self, name: str) -> None:
        """Stops the listener."""
        if name in self.listeners:
            remote.run(self.hosts[name], "kill", "-KILL", self.listeners[name])

    def _free(self, name: str, ports: list[int], probe: Probe) -> list[int]:
        """Those of the ports on which nobody listens. Notes where rigup's own services do, and who else does."""
        units = {layout.unit_name(service) for service in probe.current}
        there = [each for each in probe.listeners if each.port in ports]
        own = {each.port: each.port for each in there if each.unit in units}
        others = {each.port: each.unit or each.program or "another program" for each in there if each.port not in own}
        self.listening[name].update(own)
        for port, holder in others.items():
            what = f"port {port}, which the other hosts must reach, is in use by {holder}"
            self._find(name, what, hint=f"stop {holder}, or set join_port of the service")
        return [port for port in ports if port not in own and port not in others]

    def _wanted(self, name: str) -> dict[tuple[str, int], str]:
        """The hosts and actual ports that a host must reach, with their purpose."""
        wanted: dict[tuple[str, int], str] = {}
        for need in self.needs:
            there = self.listening.get(need.owner, {})
            if need.caller == name and need.port in there:
                wanted.setdefault((need.owner, there[need.port]), need.what)
        return wanted

    def _cannot_listen(self, name: str, port: int, what: str) -> None:
        self._find(name, f"cannot listen on port {port}: {what}", hint="on the host: ss -ltnp")

    def _find(self, name: str, message: str, *, hint: str) -> None:
        self.findings[name].append(Finding(rule="host-network", message=message, hint=hint))
