"""The address at which this machine's own SSH connection reaches a host."""

from __future__ import annotations

import ipaddress
import socket

from rigup.host import Host


def ssh_address(host: Host) -> str | None:
    """The address of a host's connection, if other hosts of its LAN may reach the host there too.

    None if that cannot be known: without a connection, through a jump host or a proxy command, for loopback (a
    forwarded port), and for a public address, which may be a router's with several hosts behind it.
    """
    client = getattr(host.connector, "client", None)
    transport = client.get_transport() if client is not None else None
    connection = getattr(transport, "sock", None)
    if not isinstance(connection, socket.socket):
        return None
    try:
        address = ipaddress.ip_address(connection.getpeername()[0].partition("%")[0])
    except (OSError, ValueError, IndexError):
        return None
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    local = address.is_loopback or address.is_unspecified or address.is_multicast or address.is_link_local
    return None if local or address.is_global else str(address)
