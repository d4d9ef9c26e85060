"""What keeps the hosts of a service together, in the unit of each."""

from __future__ import annotations

import pytest

from rigup.node import Node, PeerPort
from rigup.plan import BoundPlan, Build, Plan
from rigup.rig import Rig
from rigup.service import Service
from rigup.systemd.run_together import watched
from rigup.systemd.service import unit
from tests.nodes import unbound

WATCH = PeerPort(rank=0, port=28000, purpose="watch", callers=(1, 2))
RPC = tuple(PeerPort(rank=rank, port=18000, purpose="rpc", callers=(0,)) for rank in (1, 2))
PROGRAM = ("/usr/bin/python3", "-EsS", "/opt/rigup/programs/run_together.py")
DRAINED = ("drain=8000:120", "--", "x")


def plan(
    rank: int = 0, ports: tuple[PeerPort, ...] = (WATCH,), addresses: tuple[str, ...] = ("a", "b", "c")
) -> BoundPlan:
    made = Plan(
        host=f"box{rank}",
        group="boxes",
        verdict="ok",
        rig=Rig(gpus=()),
        service=Service(name="chat", model="m"),
        build=Build(engine="vllm", version="0.33.0", method="wheel"),
        command=("bin/vllm", "serve"),
        nodes=tuple(Node(host=f"box{rank}", address=address) for rank, address in enumerate(addresses)),
        rank=rank,
        peer_ports=ports,
    )
    return unbound(made)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(plan(), (*PROGRAM, "0", "a,b,c", "28000", *DRAINED), id="the head"),
        pytest.param(
            plan(2),
            (*PROGRAM, "2", "a,b,c", "28000", "drain=8000:120", "--", "x"),
            id="another host: where the head is",
        ),
        pytest.param(
            plan(0, (*RPC, WATCH)),
            (*PROGRAM, "0", "a,b,c", "28000", "drain=8000:120", "b:18000", "c:18000", "--", "x"),
            id="a head that connects to the engines of the others",
        ),
        pytest.param(
            plan(1, (*RPC, WATCH)),
            (*PROGRAM, "1", "a,b,c", "28000", "drain=8000:120", "--", "x"),
            id="and one of those",
        ),
        pytest.param(
            plan(addresses=("fd00::1", "fd00::2", "fd00::3")),
            (*PROGRAM, "0", "fd00::1,fd00::2,fd00::3", "28000", "drain=8000:120", "--", "x"),
            id="IPv6",
        ),
        pytest.param(
            plan(addresses=("", "", "")),
            (*PROGRAM, "0", "{node0.address},{node1.address},{node2.address}", "28000", "drain=8000:120", "--", "x"),
            id="not yet probed",
        ),
        pytest.param(plan(ports=()), ("x",), id="nothing watches, as where Ray does"),
    ],
)
def test_the_words_of_a_host(given: BoundPlan, words: tuple[str, ...]) -> None:
    assert watched(given, ("x",)) == words


def test_a_unit_of_one_host_of_several_never_gives_up() -> None:
    lines = unit(plan(1), "/opt/rigup/builds/b").splitlines()
    assert {"Restart=always", "StartLimitIntervalSec=0"} <= set(lines)
    (start,) = [line for line in lines if line.startswith("ExecStart=")]
    words = [word.strip('"') for word in start.removeprefix("ExecStart=").split()]
    assert words == [*PROGRAM, "1", "a,b,c", "28000", "drain=8000:120", "--", "/opt/rigup/builds/b/bin/vllm", "serve"]


def test_a_unit_of_a_host_alone_is_as_ever() -> None:
    alone = plan(ports=()).model_copy(update={"nodes": ()})
    lines = unit(alone, "/opt/rigup/builds/b").splitlines()
    assert {"Restart=on-failure", "StartLimitIntervalSec=900", "StartLimitBurst=5"} <= set(lines)
    assert not any("run_together" in line for line in lines)
