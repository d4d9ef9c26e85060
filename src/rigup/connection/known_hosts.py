"""What known_hosts says beyond a key for a name: another name for a host (HostKeyAlias), authorities, revoked keys.

paramiko reads none of these. An authority (@cert-authority) signs certificates of hosts. Format of a certificate:
OpenSSH, PROTOCOL.certkeys; of known_hosts: sshd(8).
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from paramiko import ECDSAKey, Ed25519Key, HostKeys, Message, PKey, RSAKey, SSHException

AUTHORITY, REVOKED = "@cert-authority", "@revoked"
HOST_CERTIFICATE = 2
SUFFIX = "-cert-v01@openssh.com"
CERTIFIED = tuple(
    f"{kind}{SUFFIX}"
    for kind in (
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "rsa-sha2-512",
        "rsa-sha2-256",
    )
)
"""The kinds of certificates that a host may present, the preferred first."""
# how many fields of its public key stand between the nonce and the serial number
_FIELDS = {"ssh-ed25519": 1, "ssh-rsa": 2, "rsa-sha2-256": 2, "rsa-sha2-512": 2}
_FIELDS |= {f"ecdsa-sha2-nistp{bits}": 2 for bits in (256, 384, 521)}
_KEYS: dict[str, type[PKey]] = {"ssh-ed25519": Ed25519Key, "ssh-rsa": RSAKey}
_KEYS |= {f"ecdsa-sha2-nistp{bits}": ECDSAKey for bits in (256, 384, 521)}
_SHA1 = "ssh-rsa"


class MarkedLine(NamedTuple):
    """A line of known_hosts with a marker: the patterns of names for which its key counts, and the key's bytes."""

    marker: str
    patterns: tuple[str, ...]
    key: bytes

    def names(self, *names: str) -> bool:
        """Whether one of these names of a host is meant."""
        wanted = [pattern for pattern in self.patterns if not pattern.startswith("!")]
        others = [pattern[1:] for pattern in self.patterns if pattern.startswith("!")]
        return any(_matches(name, wanted) for name in names) and not any(_matches(name, others) for name in names)


def marked_lines(text: str) -> Iterator[MarkedLine]:
    """The lines with a marker. Others, and those that are not well formed, are left out."""
    for line in text.splitlines():
        words = line.split()
        if len(words) < 4 or words[0] not in (AUTHORITY, REVOKED):
            continue
        try:
            key = PKey.from_type_string(words[2], base64.b64decode(words[3], validate=True)).asbytes()
        except (ValueError, SSHException):
            continue
        yield MarkedLine(words[0], tuple(words[1].split(",")), key)


def certificate_problem(key: PKey, names: Iterable[str], authorities: Iterable[bytes], now: float) -> str:
    """Why a key with a certificate is not that of a host with one of these names; "" if an authority says that it is.

    authorities: the keys of those that count for it. now: in seconds since 1970.
    """
    try:
        return _problem(key, names, authorities, now)
    except (SSHException, ValueError, IndexError, KeyError, UnicodeDecodeError):
        return "is not readable"


def _problem(key: PKey, names: Iterable[str], authorities: Iterable[bytes], now: float) -> str:
    assert key.public_blob
    blob = key.public_blob.key_blob
    message = Message(blob)
    kind = message.get_text().removesuffix(SUFFIX)
    message.get_string()  # nonce
    for _ in range(_FIELDS[kind]):
        message.get_string()
    message.get_int64()  # serial number
    purpose = message.get_int()
    message.get_string()  # key id
    principals = list(_strings(message.get_string()))
    after, before = message.get_int64(), message.get_int64()
    critical, _, _ = message.get_string(), message.get_string(), message.get_string()
    signer = message.get_string()
    signed = blob[: len(blob) - len(message.get_remainder())]
    signature = message.get_string()
    if signer not in authorities:
        return "is of an authority that is not known"
    if Message(signature).get_text() == _SHA1 or message.get_remainder():
        return "is signed in a way that is not accepted"
    authority = _KEYS[Message(signer).get_text()](Message(signer))
    if not authority.verify_ssh_sig(signed, Message(signature)):
        return "has a wrong signature"
    if purpose != HOST_CERTIFICATE:
        return "is not for a host"
    if critical:
        return "has conditions that rigup does not know"
    if not any(_matches(name.lower(), [each.lower() for each in principals]) for name in names):
        return f"is for {', '.join(principals) or 'no name'}"
    return "" if after <= now < before else "is not valid now"


def _strings(data: bytes) -> Iterator[str]:
    message = Message(data)
    while message.get_remainder():
        yield message.get_text()


def _matches(name: str, patterns: Iterable[str]) -> bool:
    """As ssh does it: "*" and "?", and nothing else that a shell knows; a name may be hashed."""
    return any(_is_hash_of(name, each) if each.startswith("|") else _fits(name, each) for each in patterns)


def _fits(name: str, pattern: str) -> bool:
    made = re.escape(pattern.lower()).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(made, name.lower()) is not None


def _is_hash_of(name: str, hashed: str) -> bool:
    try:
        return HostKeys.hash_host(name.lower(), hashed) == hashed
    except (AssertionError, IndexError, ValueError):  # it is not one
        return False


class KnownHosts:
    """The known hosts as one connection asks for them: paramiko's keys, and what the lines with a marker say.

    keys: shared by all connections with the same files. alias: the name under which the host is known, "" for its own.
    """

    def __init__(self, keys: Any, marked: tuple[MarkedLine, ...], alias: str = "") -> None:
        self.keys, self.marked, self.alias = keys, marked, alias

    def real(self, name: str) -> str:
        """The name under which a host is known."""
        return self.alias or name

    def get(self, name: str) -> Any:
        """The keys of a host by their kind, None if there are none; revoked ones are left out."""
        found = self.keys.get(self.real(name))
        if found is None or not any(self.is_revoked(name, key) for key in found.values()):
            return found
        return {kind: key for kind, key in found.items() if not self.is_revoked(name, key)} or None

    def check(self, name: str, key: PKey) -> bool:
        """Whether this is a key of the host."""
        return bool(self.keys.check(self.real(name), key))

    def add(self, name: str, kind: str, key: PKey) -> None:
        """Knows a key of a host from now on."""
        self.keys.add(self.real(name), kind, key)

    def authorities(self, name: str) -> list[bytes]:
        """The keys of the authorities that count for a host."""
        return [line.key for line in self.marked if line.marker == AUTHORITY and line.names(*self._names(name))]

    def is_revoked(self, name: str, key: PKey) -> bool:
        """Whether a key, or the authority that certified it, must not be accepted for a host."""
        revoked = [line.key for line in self.marked if line.marker == REVOKED and line.names(*self._names(name))]
        return key.asbytes() in revoked

    def problem(self, name: str, key: PKey) -> str | None:
        """Why a host's certificate does not count, "" if it does; None if the host has none, or no authority is known.

        name: as paramiko has it, "[host]:port" on another port than SSH's.
        """
        if key.public_blob is None or not (authorities := self.authorities(name)):
            return None
        revoked = {line.key for line in self.marked if line.marker == REVOKED and line.names(*self._names(name))}
        return certificate_problem(key, self._names(name), set(authorities) - revoked, time.time())

    def _names(self, name: str) -> tuple[str, ...]:
        real = self.real(name)
        host = re.fullmatch(r"\[(.*)\]:[0-9]+", real)
        return (real, host[1]) if host else (real,)
