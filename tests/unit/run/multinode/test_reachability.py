"""Whether hosts reach each other: the real listener and the real attempts, between addresses of this machine."""

from __future__ import annotations

import errno
import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.facts.host import Listener, Probe
from rigup.node import Node, PeerPort
from rigup.plan import Plan
from rigup.programs.ray_node import answers
from rigup.rig import Rig
from rigup.run.multinode import reachability
from rigup.run.multinode.reachability import check_reachable
from rigup.service import Service
from tests.lab.fleet import wait_for
from tests.unit.local_host import LocalHost

HOSTS = ("gpu1", "gpu2", "gpu3")
TAKEN = "port {}, which the other hosts must reach, is in use by nginx.service"
CANNOT_LISTEN = "cannot listen on port {}: {}"


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
    return number


def run_of(port: int, traffic: bool = False, last: str = "127.0.0.3", **probes: Probe) -> Any:
    """A run over three hosts, all of them this machine, whose head is needed at that port."""
    nodes = tuple(Node(host=name, address=f"127.0.0.{n}") for n, name in enumerate(HOSTS, 1))
    nodes = (*nodes[:2], nodes[2].model_copy(update={"address": last}))
    plans = {
        name: (
            Plan(
                host=name,
                group="three",
                verdict="ok",
                rig=Rig(gpus=()),
                service=Service(name="chat", model="M"),
                nodes=nodes,
                rank=rank,
                peer_ports=(PeerPort(rank=0, port=port, purpose="rendezvous", callers=(1, 2)),),
                peer_traffic=traffic,
            ),
        )
        for rank, name in enumerate(HOSTS)
    }
    hosts = [LocalHost(name) for name in HOSTS]
    results = {name: SimpleNamespace(probe=probes.get(name, Probe())) for name in HOSTS}
    addresses = {node.host: node.address for node in nodes}
    return SimpleNamespace(state=SimpleNamespace(inventory=hosts), plans=plans, results=results, addresses=addresses)


def said(run: Any) -> dict[str, list[str]]:
    found = check_reachable(run, HOSTS, run.addresses)
    return {name: [finding.message for finding in findings] for name, findings in found.items()}


def test_all_reach_all_and_nothing_is_left_listening(port: int) -> None:
    run = run_of(port, traffic=True)
    assert said(run) == {}
    head, *others = run.state.inventory
    assert [sum("listen_briefly" in c or "-IS -" in c for c in host.commands) for host in (head, *others)] == [1, 1, 1]
    # of the head's two ports and one of each other: everything that anybody needs of another one
    tried = [next(c for c in host.commands if "/dev/tcp" in c).count("127.0.0.") for host in (head, *others)]
    assert tried == [2, 3, 3]
    wait_for(lambda: not answers(f"127.0.0.1:{port}"), "that nobody listens any more", 5)


def test_a_port_that_somebody_else_has_is_named_with_who(port: int) -> None:
    taken = Probe(listeners=(Listener(port, "0.0.0.0", "nginx.service", "nginx"),))
    assert said(run_of(port, gpu1=taken)) == {"gpu1": [TAKEN.format(port)]}


def test_where_the_service_itself_listens_it_is_tried_as_it_is(port: int) -> None:
    running = Probe(listeners=(Listener(port, "*", "rigup-chat.service", "python"),), current={"chat": "1"})
    refused = f"cannot reach gpu1 at 127.0.0.1, port {port} (rendezvous): Connection refused"
    assert said(run_of(port, gpu1=running)) == {"gpu2": [refused], "gpu3": [refused]}
    with socket.create_server(("127.0.0.1", port)):
        assert said(run_of(port, gpu1=running)) == {}


def test_a_service_that_began_to_listen_after_the_probe_is_tried_as_it_is(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Probe(listeners=(Listener(port, "*", "rigup-chat.service", "python"),), current={"chat": "1"})
    monkeypatch.setattr(reachability, "read_probe", lambda _: now)
    with socket.create_server(("127.0.0.1", port)):
        assert said(run_of(port)) == {}


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ((), CANNOT_LISTEN.format("{}", os.strerror(errno.EADDRINUSE))),
        (("nginx.service",), TAKEN),
    ],
)
def test_a_port_that_was_taken_after_the_probe_is_named_once(
    listeners: tuple[str, ...], message: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Probe(listeners=tuple(Listener(port, "*", unit, "") for unit in listeners))
    monkeypatch.setattr(reachability, "read_probe", lambda _: now)
    with socket.create_server(("127.0.0.1", port)):
        assert said(run_of(port)) == {"gpu1": [message.format(port)]}


def test_an_address_that_is_not_the_hosts_own_is_told_by_it(port: int) -> None:
    found = said(run_of(port, traffic=True, last="192.0.2.3"))
    assert found == {"gpu3": [CANNOT_LISTEN.format(0, os.strerror(errno.EADDRNOTAVAIL))]}


def test_a_listener_whose_output_cannot_be_read_is_stopped(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    garbled = SimpleNamespace(
        read_text=lambda: "print('many ok'); print('pid 4194305')"
    )  # above the largest process id
    monkeypatch.setattr(reachability, "program_file", lambda _: garbled)
    run = run_of(port)
    assert "not a number" in said(run)["gpu1"][0]
    assert any("kill -KILL 4194305" in command for command in run.state.inventory[0].commands)
