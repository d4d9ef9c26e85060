"""The hosts of a service that spans several. In rank order; the first is the head, which has the API."""

from typing import Annotated, Literal

from pydantic import Field

from rigup.units import Frozen, Port

# Placeholders in the command and environment of a plan until a probe supplies the values.
ADDRESS_OF_RANK = "{{node{rank}.address}}"
OWN_ADDRESS = "{node.address}"
OWN_INTERFACE = "{node.interface}"
OWN_RDMA_DEVICES = "{node.rdma_devices}"


def address_of(rank: int) -> str:
    """The placeholder for the address of the host of that rank."""
    return ADDRESS_OF_RANK.format(rank=rank)


class Network(Frozen):
    """`rig.network`: the network between the hosts of one service.

    private: only these hosts use it; if not, the ports that they open to each other are closed to all others.
    subnet: the subnet of the addresses that they use, "192.168.100.0/24"; None means the address at which SSH reaches
    each.
    """

    private: bool = True
    subnet: str | None = None


class Node(Frozen):
    """One host of a service. Fields that only a probe can fill are empty until then.

    host: its name in the inventory. address: at which the others reach it. interface: the kernel's name of the
    interface with that address. rdma_devices: the HCAs behind that interface, as NCCL_IB_HCA takes them.
    """

    host: str
    address: Annotated[str, Field(pattern=r"^[0-9A-Fa-f.:]*$")] = ""
    interface: str = ""
    rdma_devices: tuple[str, ...] = ()


class PeerPort(Frozen):
    """A TCP port of one host of a service that others of them must reach, before anything starts.

    rank: of the host with the port. callers: the ranks that connect to it. purpose: "watch" is rigup's own: through it
    the hosts run their engines together or not at all.
    """

    rank: Annotated[int, Field(ge=0)]
    port: Port
    purpose: Literal["rendezvous", "rpc", "ray", "watch"]
    callers: tuple[int, ...]
