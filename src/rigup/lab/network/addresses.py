"""The addresses of a lab. Lab N (1 to 254) is 10.77.N.0/24 in its own namespace, and 127.77.N.x on this machine."""

from __future__ import annotations

INSIDE = "10.77"
OUTSIDE = "127.77"
FIRST_MACHINE = 11
MOST_MACHINES = 200
MOST_LABS = 254

PACKAGE_PORT = 3128
SSH_PORT = 22
FORWARDED_PORTS = (8000,)
"""Ports of a machine, besides SSH, that are forwarded from its loopback address."""


def hub_address(number: int) -> str:
    """The lab's own address inside: its package server listens here, and optionally a model hub."""
    return f"{INSIDE}.{number}.1"


def cdn_address(number: int) -> str:
    """A second address of the lab inside, for a server that must be on another host than the hub."""
    return f"{INSIDE}.{number}.2"


def machine_address(number: int, index: int) -> str:
    """The address of machine `index` (from 1) inside lab `number`."""
    return f"{INSIDE}.{number}.{FIRST_MACHINE - 1 + index}"


def hardware_address(number: int, index: int) -> str:
    """The Ethernet address of machine `index` of lab `number`: the same at every boot, like a network card's."""
    return f"02:77:00:{number:02x}:00:{index:02x}"


def loopback_address(number: int, index: int) -> str:
    """The address at which this machine reaches machine `index` (from 1) of lab `number`."""
    return f"{OUTSIDE}.{number}.{FIRST_MACHINE - 1 + index}"


def namespace(number: int) -> str:
    """The network namespace of lab `number`, by the name that `ip netns` uses."""
    return f"rigup-{number}"


def machine_namespace(number: int, index: int) -> str:
    """The network namespace of machine `index` of lab `number`."""
    return f"rigup-{number}-{index}"
