"""How host keys are checked, those of jump hosts too: a key that is not in known_hosts is refused without a question.

The inventory or the user's ssh_config may choose another policy for a host. A key that is accepted is written to
known_hosts. A key that differs from known_hosts is refused under every policy. Of a host without a key there, the
certificate of an authority counts (known_hosts.py).
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from paramiko import BadHostKeyException, MissingHostKeyPolicy, SSHException

from rigup.connection import pyinfra_internals
from rigup.connection.known_hosts import AUTHORITY, CERTIFIED, KnownHosts, marked_lines
from rigup.connection.pyinfra_internals import AcceptNewPolicy, StrictPolicy, WarningPolicy
from rigup.connection.ssh_config import ssh_config

POLICY = "ssh_strict_host_key_checking"
POLICIES = ("yes", "no", "off", "accept-new")
SSH_PORT = 22

# The text of pyinfra or paramiko, rigup's message, and the hint; {} are the groups, in order.
REASONS = (
    (
        r"Host key for (\S+) does not match",
        "the host key of {} does not match known_hosts",
        "if you know why it changed, remove the old key: ssh-keygen -R '{}'",
    ),
    (
        r"No host key for \[(\S+)\]:(\d+) found",
        "the host key of [{}]:{} is not known",
        "log in once with ssh, or list its keys: ssh-keyscan -p {1} {0}",
    ),
    (
        r"No host key for (\S+) found",
        "the host key of {} is not known",
        "log in once with ssh, or list its keys: ssh-keyscan {}",
    ),
    (
        r"Host key for (\S+) is revoked",
        "the host key of {} is revoked in known_hosts",
        "connect to another machine, or find out why the key was revoked",
    ),
    (r"Certificate of (\S+): (.*)", "the host certificate of {} {}", "see what ssh says of it: ssh -v {0}"),
)


def with_policy(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """A host's connection data with its host key policy: the inventory's, else that of ssh_config, else refusal.

    Raises InputError if its ssh_config cannot be read.
    """
    policy = str(data.get(POLICY) or "")
    if not policy:
        hostname = data.get("ssh_hostname") or name.rpartition("@")[2]
        asked = ssh_config(data.get("ssh_config_file"), hostname).get("stricthostkeychecking")
        policy = asked if asked in POLICIES else "yes"
    return {**data, POLICY: policy}


def check_host_keys() -> None:
    """Has pyinfra check every host key by these policies; it asks on the terminal about an unknown jump host."""
    policies = {"accept-new": _AcceptNew, "no": WarningPolicy, "off": WarningPolicy}
    pyinfra_internals.replace_host_key_policies(
        lambda value: _CertificatesFirst(policies.get(value or "", StrictPolicy)())
    )
    pyinfra_internals.replace_known_hosts(_known_hosts)
    pyinfra_internals.name_jump_hosts_as_ssh_does()


def mismatch(error: BaseException, client: Any) -> str | None:
    """The text of an error that began with a changed host key, of this host or a jump host; None for any other."""
    if not isinstance(error.__context__, BadHostKeyException):
        return None
    hostname, port = error.__context__.hostname, pyinfra_internals.port_of(client)
    return f"Host key for {hostname if port == SSH_PORT else f'[{hostname}]:{port}'} does not match."


def transport(sock: Any, **arguments: Any) -> Any:
    """A transport that takes certificates of hosts, too, where known_hosts names an authority."""
    made = pyinfra_internals.prompt_transport(sock, **arguments)
    if (known := _asked.get()) and any(line.marker == AUTHORITY for line in known.marked):
        options = made.get_security_options()
        options.key_types = (*CERTIFIED, *options.key_types)
    return made


_asked: ContextVar[KnownHosts | None] = ContextVar("rigup_known_hosts", default=None)


def _known_hosts(keys: Any, files: tuple[str, ...], alias: str) -> KnownHosts:
    texts = []
    for file in files:
        with suppress(OSError):  # paramiko passes over it, too
            texts.append(Path(file).read_text(errors="replace"))
    known = KnownHosts(keys, tuple(line for text in texts for line in marked_lines(text)), alias)
    _asked.set(known)
    return known


class _CertificatesFirst(MissingHostKeyPolicy):
    """Takes the certificate of a known authority, refuses a revoked key, and leaves every other to another policy."""

    def __init__(self, other: Any) -> None:
        self.other = other

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        """Raises SSHException for a key that does not count."""
        known = pyinfra_internals.known_hosts(client)
        if known.is_revoked(hostname, key):
            raise SSHException(f"Host key for {hostname} is revoked")
        problem = known.problem(hostname, key)
        if problem == "":
            return
        if problem and isinstance(self.other, StrictPolicy):
            raise SSHException(f"Certificate of {hostname}: {problem}")
        self.other.missing_host_key(client, known.real(hostname), key)


class _AcceptNew(AcceptNewPolicy):
    """Records an unknown host key, as pyinfra does, and holds the host to it for the rest of this run too."""

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        """Takes the key, on disk (whose folder need not be there yet) and in memory."""
        pyinfra_internals.known_hosts_file(client).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().missing_host_key(client, hostname, key)
        pyinfra_internals.trust_host_key(client, hostname, key)
