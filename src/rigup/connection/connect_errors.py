"""Turns the SSH libraries' connection errors into messages with hints."""

from __future__ import annotations

import re

from rigup.connection import host_keys
from rigup.errors import HostUnreachable

_NAME_THE_KEY = "set the key: IdentityFile in ssh_config, or ssh_key"
_KEY_MUST_BE = "ssh_key must name a private key"

# The text of pyinfra or paramiko, rigup's message, and the hint; {} are the groups, in order.
_REASONS = (
    (
        r"Could not resolve hostname \(\[Errno \S+\] (.*)\)",
        "the host name does not resolve ({})",
        "check the name in the inventory, or set ssh_hostname",
    ),
    *host_keys.REASONS,
    (
        r"ProxyCommand ended with (.*)",
        "its ProxyCommand ended with {}",
        "check what ProxyCommand in ssh_config connects through",
    ),
    (r"Authentication error \(([^()]+)\)", "the host accepts none of the offered keys ({})", _NAME_THE_KEY),
    (r"Authentication error|Authentication failed", "the host accepts none of the offered keys", _NAME_THE_KEY),
    (r"No authentication methods", "no SSH key to offer", _NAME_THE_KEY),
    (
        r"Unable to connect to port (\d+) on (\S+?)\)*$",
        "port {} of {} refuses connections",
        "check that sshd is running there and that ssh_port is correct",
    ),
    (r"timed out", "no response in time", "check that the host is on and reachable from this machine"),
    (
        r"No existing session|reading SSH protocol banner",
        "the server accepts connections but does not speak SSH",
        "wait if the host is still booting, and check ssh_port",
    ),
    (
        r"No route|unreachable",
        "no route to the host",
        "check that the host is on and that this machine is on the right network",
    ),
    (r"No such private key file: (.*)", "the key file {} does not exist", _KEY_MUST_BE),
    (r"Invalid (?:private )?key(?: file)?: (.*)", "{} is not a readable private key", _KEY_MUST_BE),
    (
        r"Private key file \((.*)\) is encrypted",
        "the key file {} needs a passphrase",
        "load it into ssh-agent and remove ssh_key, or set ssh_key_password",
    ),
)


def connect_error(name: str, text: str) -> HostUnreachable:
    """The error to show for host `name`, from the libraries' text; unknown texts are shown unchanged."""
    for pattern, message, hint in _REASONS:
        if found := re.search(pattern, text):
            return HostUnreachable(f"{name}: {message.format(*found.groups())}", hint.format(*found.groups()))
    return HostUnreachable(f"{name}: cannot connect ({text})", f"try the same with: ssh -v {name}")
