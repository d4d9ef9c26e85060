"""A host's network: interfaces, their addresses, and the RDMA devices behind them.

rigup reads it only on hosts of a service that spans several hosts. The kernel says which interface has an address and
which device is behind it; names of interfaces and devices say nothing.
"""

import ipaddress
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from pyinfra.api import FactBase

from rigup.facts.bounds import Unreadable, count, json_of, shown
from rigup.facts.host_output import HostOutput, Line, checked

ACTIVE = "ACTIVE"
MOST_LINES = 100_000
_ADDRESSES = "its list of interfaces"

# sudo removes SSH_CONNECTION, but a parent process still has it. The kernel gives no `speed` for a link that is down,
# and -1 for many virtual ones. On Ethernet, a device's GID table names the interface of each entry, including VLANs and
# bonds; on InfiniBand, only device/net does.
_SCRIPT = r"""export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
connection=${SSH_CONNECTION:-}; process=$$
while [ -z "$connection" ] && [ "${process:-0}" -gt 1 ]; do
connection=$(tr '\0' '\n' 2>/dev/null < "/proc/$process/environ" | sed -n 's/^SSH_CONNECTION=//p')
process=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$process/status" 2>/dev/null)
done
echo "ssh $connection"
echo "addresses $(ip -json addr 2>&1 | tr -d '\n')"
for link in /sys/class/net/*; do
[ -r "$link/speed" ] && echo "speed ${link##*/} $(cat "$link/speed" 2>/dev/null)"
done
for port in /sys/class/infiniband/*/ports/*; do
[ -r "$port/state" ] || continue
device=${port%/ports/*}
echo "rdma ${device##*/} ${port##*/} $(cat "$port/link_layer" 2>/dev/null) $(cat "$port/state")"
for name in $(cat "$port"/gid_attrs/ndevs/* 2>/dev/null | sort -u); do
echo "gid ${device##*/} ${port##*/} $name"
done
for link in "$device"/device/net/*; do
[ -e "$link" ] && echo "behind ${device##*/} ${link##*/} $(cat "$link/dev_port" 2>/dev/null || echo 0)"
done
done
true"""


class _AddressOutput(HostOutput):
    """One address in the output of `ip -json addr`; `local` is missing for an address of the other side."""

    local: Line | None = None
    prefixlen: Annotated[int, Field(ge=0, le=128, strict=False)] = 0


class LinkOutput(HostOutput):
    """One interface in the output of `ip -json addr`; with `to ADDRESS`, all without that address are {}."""

    ifname: Line = ""
    flags: Annotated[list[Line], Field(max_length=100)] = []
    operstate: Line = ""
    mtu: Annotated[int, Field(ge=0, le=2**32)] = 0
    addr_info: Annotated[list[_AddressOutput], Field(max_length=10_000)] = []


class _LinksOutput(HostOutput):
    links: Annotated[list[LinkOutput], Field(max_length=10_000)]


def read_links(text: str) -> list[LinkOutput]:
    """Parses the output of `ip -json addr`. Raises Unreadable."""
    return checked(_LinksOutput, {"links": json_of(text, _ADDRESSES)}, _ADDRESSES).links


@dataclass(frozen=True)
class Address:
    """One address of an interface, with its prefix length in bits."""

    address: str
    prefix: int

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"


@dataclass(frozen=True)
class Interface:
    """One network interface. up: switched on, with a link. mtu: bytes. speed_mbits: None if unknown."""

    name: str
    up: bool = False
    mtu: int = 0
    speed_mbits: int | None = None
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True)
class RdmaPort:
    """One port of an RDMA device.

    name: in the form of NCCL_IB_HCA: the device, with ":" and the port if it has several. state: "ACTIVE", "DOWN",
    "INIT", "ARMED". layer: "Ethernet" (RoCE) or "InfiniBand". interfaces: network interfaces in front of it.
    """

    name: str
    state: str
    layer: str = ""
    interfaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostNetwork:
    """ssh_address: the host's address at which this SSH connection arrived; "" if unknown.

    error: the output that came instead of the list of interfaces; "" if the list came.
    """

    interfaces: tuple[Interface, ...] = ()
    rdma: tuple[RdmaPort, ...] = ()
    ssh_address: str = ""
    error: str = ""

    def holder(self, address: str) -> Interface | None:
        """The interface with this address, or None."""
        return next((each for each in self.interfaces if any(a.address == address for a in each.addresses)), None)

    def rdma_devices(self, interface: str) -> tuple[str, ...]:
        """The names of the active RDMA ports behind an interface."""
        return tuple(port.name for port in self.rdma if interface in port.interfaces and port.state == ACTIVE)


class NetworkOfHost(FactBase[HostNetwork]):
    """Reads a `HostNetwork` in one command, as root or not."""

    @staticmethod
    def default() -> HostNetwork:
        return HostNetwork()

    def command(self) -> str:
        return _SCRIPT

    def process(self, output: list[str]) -> HostNetwork:
        return parse(output)


def parse(output: list[str]) -> HostNetwork:
    """Parses the script's output. Raises Unreadable for lines that the script cannot have printed."""
    if len(output) > MOST_LINES:
        raise Unreadable(f"its network: more than {MOST_LINES:,} lines")
    by_key: dict[str, list[str]] = {}
    for key, rest in (line.split(" ", 1) for line in output if " " in line):
        by_key.setdefault(key, []).append(rest.strip())
    connection = next(iter(by_key.get("ssh", ())), "").split()
    listed = next(iter(by_key.get("addresses", ())), "")
    speeds = dict(words[:2] for words in (line.split() for line in by_key.get("speed", ())) if len(words) > 1)
    if not listed.startswith("["):  # an error message, for example that ip is not installed
        return HostNetwork(error=shown(listed) or "the list of interfaces is missing")
    interfaces = tuple(_interface(each, speeds) for each in read_links(listed) if each.ifname)
    try:
        return HostNetwork(interfaces, _rdma(by_key), shown(connection[2]) if len(connection) == 4 else "")
    except ValueError as error:
        raise Unreadable(f"its RDMA devices: {error}") from None


def _interface(link: LinkOutput, speeds: dict[str, str]) -> Interface:
    speed = speeds.get(link.ifname, "")
    return Interface(
        link.ifname,
        "UP" in link.flags and "LOWER_UP" in link.flags and link.operstate != "DOWN",
        link.mtu,
        (int(speed) or None) if speed.isascii() and speed.isdigit() and len(speed) < 10 else None,
        tuple(_address(each.local, each.prefixlen) for each in link.addr_info if each.local is not None),
    )


def _address(text: str, prefix: int) -> Address:
    try:
        if "%" in text:  # a zone may contain any text, and other hosts would receive it
            raise ValueError
        return Address(str(ipaddress.ip_address(text)), prefix)
    except ValueError:
        raise Unreadable(f'{_ADDRESSES}: "{shown(text)}" is not an address') from None


def _rdma(by_key: dict[str, list[str]]) -> tuple[RdmaPort, ...]:
    ports = [words for words in (line.split() for line in by_key.get("rdma", ())) if len(words) > 2]
    several = {device for device, number, *_ in ports if number != "1"}
    gids = [words for words in (line.split() for line in by_key.get("gid", ())) if len(words) == 3]
    behind = [words for words in (line.split() for line in by_key.get("behind", ())) if len(words) == 3]
    found = []
    for device, number, *rest in ports:
        one = [name for owner, port, name in gids if (owner, port) == (device, number)]
        other = [
            name
            for owner, name, index in behind
            if owner == device and (device not in several or count(index) + 1 == count(number))
        ]
        # "Ethernet 4: ACTIVE"; a kernel without link_layer prints only the state
        layer = rest[0] if len(rest) == 3 else ""
        name = f"{device}:{number}" if device in several else device
        found.append(RdmaPort(name, rest[-1], layer, tuple(dict.fromkeys((*one, *other)))))
    return tuple(found)
