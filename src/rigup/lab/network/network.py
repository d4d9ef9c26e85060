"""The network of a lab: an isolated bridge in a namespace, a cable to each machine, and sockets inside it.

Nothing is routed out. Machines can reach an outside server only if it listens on a socket of `lab_socket`.
"""

import ctypes
import os
import socket
from pathlib import Path

from rigup.errors import HostFailed, MissingTool
from rigup.lab.folder import LabFolder, LabRecord, write
from rigup.lab.network.addresses import (
    MOST_LABS,
    cdn_address,
    hardware_address,
    hub_address,
    machine_namespace,
    namespace,
)
from rigup.lab.process import run
from rigup.units import Frozen

NAMESPACES = Path("/run/netns")
CLONE_NEWNET = 0x40000000
BRIDGE = "bridge"
CARD, PLUG, LINE = "host0", "plug", "line"
"""A machine's network card, the plug of its cable, and the line from there to the lab's bridge."""


class Cable(Frozen):
    """The cable of one machine: plugged in or cut, and its rate in tc's syntax ("8mbit"), None for unlimited."""

    plugged: bool = True
    rate: str | None = None


def lab_socket(name: str) -> socket.socket:
    """A TCP socket in the lab `name` for an outside process, to bind to `hub_address` or `cdn_address` of its number.

    Raises InputError if the lab does not exist. The caller closes the socket. `Lab.down` ends the listening process if
    `rigup.lab.process.start` started it with its pid file in the lab's folder.
    """
    return namespace_socket(namespace(LabFolder(name).existing().number))


def namespace_socket(name: str) -> socket.socket:
    """A TCP socket of the network namespace `name`: a socket keeps the namespace in which it was created."""
    libc = ctypes.CDLL(None, use_errno=True)
    own, other = (os.open(path, os.O_RDONLY) for path in ("/proc/thread-self/ns/net", NAMESPACES / name))
    try:
        if libc.setns(other, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")
        try:
            return socket.socket()
        finally:
            if libc.setns(own, CLONE_NEWNET):
                os._exit(70)  # a process in the wrong network must not continue
    finally:
        os.close(own)
        os.close(other)


def answers(number: int, address: tuple[str, int]) -> bool:
    """Whether something inside lab `number` accepts connections at an address."""
    with namespace_socket(namespace(number)) as connection:
        connection.settimeout(2)
        return connection.connect_ex(address) == 0


def allocate() -> int:
    """Takes the first free lab number by creating its namespace, so that no two labs of this machine share one."""
    for number in range(1, MOST_LABS + 1):
        if claim(number):
            return number
    raise MissingTool(f"all {MOST_LABS} lab networks are in use", "rigup lab down --all")


def claim(number: int) -> bool:
    """Creates the network of one lab completely or not at all; returns False if it exists."""
    name = namespace(number)
    if (NAMESPACES / name).exists():
        return False
    try:
        run(["ip", "netns", "add", name])
    except HostFailed:
        if (NAMESPACES / name).exists():
            return False  # another process was faster
        raise
    ip = ["ip", "-n", name]
    try:
        run([*ip, "link", "set", "lo", "up"])
        run([*ip, "link", "add", BRIDGE, "type", "bridge"])
        for address in (hub_address(number), cdn_address(number)):
            run([*ip, "address", "add", f"{address}/24", "dev", BRIDGE])
        run([*ip, "link", "set", BRIDGE, "up"])
    except BaseException:
        release(number)
        raise
    return True


def release(number: int) -> None:
    """Removes the network of one lab, if it exists."""
    if (NAMESPACES / namespace(number)).exists():
        run(["ip", "netns", "delete", namespace(number)])


def identity(number: int) -> int:
    """The identity of lab `number`'s network: its creation time in ns; 0 if it does not exist.

    A recreated network is a different one, but may have the same inode, because the kernel reuses numbers.
    """
    try:
        return (NAMESPACES / namespace(number)).stat().st_ctime_ns
    except FileNotFoundError:
        return 0


def up(record: LabRecord) -> bool:
    """Whether this lab's network exists."""
    return identity(record.number) == record.network


def connect(number: int, index: int) -> None:
    """Lays the line of a machine that is off, from a namespace on this side to the lab's bridge."""
    disconnect(number, index)
    lab, own, port = namespace(number), machine_namespace(number, index), f"port{index}"
    run(["ip", "netns", "add", own])
    run(["ip", "-n", lab, "link", "add", port, "type", "veth", "peer", "name", LINE, "netns", own])
    run(["ip", "-n", lab, "link", "set", port, "master", BRIDGE, "up"])
    run(["ip", "-n", own, "link", "add", BRIDGE, "type", "bridge"])
    run(["ip", "-n", own, "link", "set", BRIDGE, "up"])
    run(["ip", "-n", own, "link", "set", LINE, "master", BRIDGE, "up"])


def insert_card(number: int, index: int, cable: Cable) -> None:
    """Gives a machine a new network card for the boot that follows, with its cable, at the end of its line.

    nspawn takes the card from here into the machine's own namespace, which ends with the boot, and the card with it.
    """
    own = machine_namespace(number, index)
    run(["ip", "-n", own, "link", "delete", PLUG], check=False)
    card = ["name", CARD, "address", hardware_address(number, index)]
    run(["ip", "-n", own, "link", "add", PLUG, "type", "veth", "peer", *card])
    run(["ip", "-n", own, "link", "set", PLUG, "master", BRIDGE])
    plug(number, index, cable)


def disconnect(number: int, index: int) -> None:
    """Removes the network card of a machine that is off, with any remaining connections."""
    if (NAMESPACES / machine_namespace(number, index)).exists():
        # Remove the line first: a namespace with a closing connection is freed only later.
        run(["ip", "-n", namespace(number), "link", "delete", f"port{index}"], check=False)
        run(["ip", "netns", "delete", machine_namespace(number, index)], check=False)


def plug(number: int, index: int, cable: Cable) -> None:
    """Plugs or cuts the cable of a machine that is on, and limits its rate in both directions."""
    lab, own, port = namespace(number), machine_namespace(number, index), f"port{index}"
    for place, device in ((lab, port), (own, LINE)):
        run(["tc", "-n", place, "qdisc", "delete", "dev", device, "root"], check=False)
        if cable.rate:
            shape = ["rate", cable.rate, "burst", "32kb", "latency", "200ms"]
            run(["tc", "-n", place, "qdisc", "add", "dev", device, "root", "tbf", *shape])
    state = "up" if cable.plugged else "down"
    run(["ip", "-n", own, "link", "set", LINE, state])
    # The card's carrier. The card may have gone with a boot that has just ended.
    run(["ip", "-n", own, "link", "set", PLUG, state], check=False)


def read_cable(folder: Path) -> Cable:
    """The state of a machine's cable, from the machine's folder; it persists over reboots."""
    try:
        return Cable.model_validate_json((folder / "cable.json").read_text())
    except FileNotFoundError:
        return Cable()


def keep_cable(folder: Path, cable: Cable) -> None:
    """Saves the state of a machine's cable."""
    write(folder / "cable.json", cable.model_dump_json())
