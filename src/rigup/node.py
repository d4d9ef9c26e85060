"""The hosts of a service that spans several. In rank order; the first is the head, which has the API."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rigup.units import Frozen

# One of these stands for the command and the environment of a plan until a probe has told what to put there.
ADDRESS_OF_RANK = "{{node{rank}.address}}"
OWN_ADDRESS = "{node.address}"
OWN_INTERFACE = "{node.interface}"
OWN_RDMA_DEVICES = "{node.rdma_devices}"


class Network(Frozen):
    """`rig.network`: what the hosts of one service have between them.

    private: nobody else is on it; where others are, what the hosts open to each other is closed to everybody else.
    subnet: whose addresses they use, "192.168.100.0/24"; None means the address at which SSH reaches each.
    """

    private: bool = True
    subnet: str | None = None


class Node(Frozen):
    """One host of a service. What only a probe can tell is empty until then.

    host: as the inventory calls it. address: at which the others reach it. interface: the kernel's name of what holds
    that address. rdma_devices: the HCAs behind that interface, as NCCL_IB_HCA takes them.
    """

    host: str
    address: str = ""
    interface: str = ""
    rdma_devices: tuple[str, ...] = ()


class PeerPort(Frozen):
    """A TCP port of one host of a service that others of them must reach, before anything starts.

    rank: whose port. callers: the ranks that connect to it. purpose: "watch" is rigup's own: over it the hosts have
    their engines run together or not at all.
    """

    rank: Annotated[int, Field(ge=0)]
    port: Annotated[int, Field(ge=1, le=65535)]
    purpose: Literal["rendezvous", "rpc", "ray", "watch"]
    callers: tuple[int, ...]
