"""What a host has towards others: interfaces, their addresses, and the RDMA devices behind them.

Asked of the hosts of a service that spans several, and of no others. Names mean nothing here: which interface holds an
address and which device is behind it is what the kernel says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyinfra.api import FactBase

ACTIVE = "ACTIVE"

# sudo forgets SSH_CONNECTION; a parent process still has it. `speed` of a link that is down cannot be read, and is -1
# for many virtual ones. A device's GID table names the interface of each entry, also VLANs and bonds, on Ethernet;
# device/net is what there is on InfiniBand.
_SCRIPT = r"""export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
said=${SSH_CONNECTION:-}; process=$$
while [ -z "$said" ] && [ "${process:-0}" -gt 1 ]; do
said=$(tr '\0' '\n' 2>/dev/null < "/proc/$process/environ" | sed -n 's/^SSH_CONNECTION=//p')
process=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$process/status" 2>/dev/null)
done
echo "ssh $said"
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


@dataclass(frozen=True)
class Address:
    """One address of an interface, with the length of its subnet's prefix in bits."""

    address: str
    prefix: int

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"


@dataclass(frozen=True)
class Interface:
    """One network interface. up: switched on, with a link. mtu: bytes. speed_mbits: None where the kernel has none."""

    name: str
    up: bool = False
    mtu: int = 0
    speed_mbits: int | None = None
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True)
class RdmaPort:
    """One port of an RDMA device.

    name: as NCCL_IB_HCA takes it: the device, with ":" and the port where it has several. state: "ACTIVE", "DOWN",
    "INIT", "ARMED". layer: "Ethernet" (RoCE) or "InfiniBand". interfaces: that are in front of it.
    """

    name: str
    state: str
    layer: str = ""
    interfaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostNetwork:
    """ssh_address: the address of the host's at which this SSH connection arrived; "" where nobody says.

    error: what came in place of the list of interfaces; "" where it came.
    """

    interfaces: tuple[Interface, ...] = ()
    rdma: tuple[RdmaPort, ...] = ()
    ssh_address: str = ""
    error: str = ""

    def holder(self, address: str) -> Interface | None:
        """The interface that has this address."""
        return next((each for each in self.interfaces if any(a.address == address for a in each.addresses)), None)

    def rdma_devices(self, interface: str) -> tuple[str, ...]:
        """Names of the active RDMA ports behind an interface."""
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
    """A `HostNetwork` from the script's lines. Raises ValueError for a line of it that makes no sense."""
    lines = [line.split(" ", 1) for line in output if " " in line]
    told: dict[str, list[str]] = {}
    for key, rest in lines:
        told.setdefault(key, []).append(rest.strip())
    said = next(iter(told.get("ssh", ())), "").split()
    listed = next(iter(told.get("addresses", ())), "")
    speeds = dict(words[:2] for words in (line.split() for line in told.get("speed", ())) if len(words) > 1)
    try:
        found = json.loads(listed)
    except ValueError:
        return HostNetwork(error=listed or "no list of interfaces came")
    interfaces = tuple(_interface(each, speeds) for each in found if each.get("ifname"))
    return HostNetwork(interfaces, _rdma(told), said[2] if len(said) == 4 else "")


def _interface(said: dict[str, Any], speeds: dict[str, str]) -> Interface:
    name, flags = str(said["ifname"]), said.get("flags", ())
    speed = int(speeds.get(name, "-1"))
    return Interface(
        name,
        "UP" in flags and "LOWER_UP" in flags and said.get("operstate") != "DOWN",
        int(said.get("mtu", 0)),
        speed if speed > 0 else None,
        tuple(Address(str(each["local"]), int(each["prefixlen"])) for each in said["addr_info"] if "local" in each),
    )


def _rdma(told: dict[str, list[str]]) -> tuple[RdmaPort, ...]:
    ports = [line.split() for line in told.get("rdma", ())]
    several = {device for device, number, *_ in ports if number != "1"}
    gids = [line.split() for line in told.get("gid", ())]
    behind = [line.split() for line in told.get("behind", ())]
    found = []
    for device, number, *rest in ports:
        one = [name for owner, port, name in gids if (owner, port) == (device, number)]
        other = [
            name
            for owner, name, index in behind
            if owner == device and (device not in several or int(index) == int(number) - 1)
        ]
        # "Ethernet 4: ACTIVE"; a kernel that is too old for link_layer says the state alone
        layer = rest[0] if len(rest) == 3 else ""
        name = f"{device}:{number}" if device in several else device
        found.append(RdmaPort(name, rest[-1], layer, tuple(dict.fromkeys((*one, *other)))))
    return tuple(found)
