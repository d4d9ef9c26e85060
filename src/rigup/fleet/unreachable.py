"""Why a host could not be reached, in words, with what to do about it. The libraries below say it in theirs."""

from __future__ import annotations

import re

from rigup.errors import Unreachable

_NAME_THE_KEY = "name the key: IdentityFile in ssh_config, or ssh_key"
_KEY_MUST_BE = "ssh_key must name a private key"

# What pyinfra or paramiko says, what rigup says, and the hint; {} are the groups, in order.
_REASONS = (
    (
        r"Could not resolve hostname \(\[Errno \S+\] (.*)\)",
        "its name does not resolve ({})",
        "check the name in the inventory, or set ssh_hostname",
    ),
    (
        r"Host key for (\S+) does not match",
        "the host key of {} is not the known one",
        "if you know why it changed, forget the old one: ssh-keygen -R '{}'",
    ),
    (
        r"No host key for \[(\S+)\]:(\d+) found",
        "the host key of [{}]:{} is not known",
        "log in once with ssh, or see its keys: ssh-keyscan -p {1} {0}",
    ),
    (
        r"No host key for (\S+) found",
        "the host key of {} is not known",
        "log in once with ssh, or see its keys: ssh-keyscan {}",
    ),
    (r"Authentication error \(([^()]+)\)", "it accepts none of the keys offered ({})", _NAME_THE_KEY),
    (r"Authentication error|Authentication failed", "it accepts none of the keys offered", _NAME_THE_KEY),
    (r"No authentication methods", "there is no key to offer", _NAME_THE_KEY),
    (
        r"Unable to connect to port (\d+) on (\S+?)\)*$",
        "port {} of {} refuses connections",
        "is sshd running there, and is ssh_port right?",
    ),
    (r"timed out", "no answer in time", "is it on, and can this machine reach it?"),
    (
        r"No existing session|reading SSH protocol banner",
        "something takes the connection, but does not answer as SSH does",
        "is it on or still booting, and is ssh_port right?",
    ),
    (r"No route|unreachable", "there is no route to it", "is it on, and is this machine on the right network?"),
    (r"No such private key file: (.*)", "its key file {} does not exist", _KEY_MUST_BE),
    (r"Invalid (?:private )?key(?: file)?: (.*)", "{} is not a private key that can be read", _KEY_MUST_BE),
    (
        r"Private key file \((.*)\) is encrypted",
        "its key file {} wants a passphrase",
        "load it into ssh-agent and leave ssh_key out, or set ssh_key_password",
    ),
)


def explain(name: str, text: str) -> Unreachable:
    """The error to show for host `name`, from what the libraries said; what nobody has met yet is shown as it is."""
    for pattern, message, hint in _REASONS:
        if found := re.search(pattern, text):
            return Unreachable(f"{name}: {message.format(*found.groups())}", hint.format(*found.groups()))
    return Unreachable(f"{name}: cannot connect ({text})", f"try the same with: ssh -v {name}")
