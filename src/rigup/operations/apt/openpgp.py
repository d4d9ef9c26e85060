"""Reads the fingerprints of primary keys in an OpenPGP public key file. Pure; terms as in RFC 9580."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator

PUBLIC_KEY = 6
VERSION = 4
LARGEST_KEY = 2**16 - 1
_ARMOUR = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)


def fingerprints(data: bytes) -> tuple[str, ...]:
    """The fingerprints of every primary key in a key file, armoured or not; 40 hex digits in capitals.

    Raises ValueError if the data is not a file of OpenPGP version 4 public keys.
    """
    try:
        found = [body for tag, body in _packets(binary(data)) if tag == PUBLIC_KEY]
    except IndexError:
        raise ValueError("ends too early") from None
    if not found:
        raise ValueError("holds no OpenPGP public key")
    return tuple(_fingerprint(body) for body in found)


def holds_only(data: bytes, fingerprint: str) -> bool:
    """Whether this is a key file with one key, of this fingerprint."""
    try:
        return fingerprints(data) == (fingerprint,)
    except ValueError:
        return False


def binary(data: bytes) -> bytes:
    """The same keys without armour, as apt requires in a file that ends in .gpg."""
    return b"".join(_unarmoured(block) for block in _ARMOUR.findall(data)) or data


def _unarmoured(block: bytes) -> bytes:
    """The bytes of one armoured block, without headers and checksum."""
    text = block.replace(b"\r\n", b"\n").partition(b"\n\n")[2]
    lines = [line for line in text.splitlines() if line and not line.startswith(b"=")]
    return base64.b64decode(b"".join(lines), validate=True)


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and body of each packet; raises ValueError if the file ends within one."""
    at = 0
    while at < len(data):
        first = data[at]
        if not first & 0x80:
            raise ValueError("is not an OpenPGP key file")
        tag, at, size = (first & 0x3F, *_new_size(data, at + 1)) if first & 0x40 else _old_size(data, at)
        if at + size > len(data):
            raise ValueError("ends too early")
        yield tag, data[at : at + size]
        at += size


def _new_size(data: bytes, at: int) -> tuple[int, int]:
    """The start of the body of a packet with a new header, and its size."""
    head = data[at : at + 5]
    if head[:1] < b"\xc0":
        return at + 1, head[0]
    if head[:1] < b"\xe0":
        return at + 2, ((head[0] - 192) << 8) + head[1] + 192
    if head[:1] == b"\xff":
        return at + 5, int.from_bytes(head[1:5], "big")
    raise ValueError("has a partial packet, which is invalid in a key")


def _old_size(data: bytes, at: int) -> tuple[int, int, int]:
    """The tag of a packet with an old header, the start of its body, and its size."""
    first = data[at]
    if first & 3 == 3:
        raise ValueError("has a packet without a length, which is invalid in a key")
    count = 1 << (first & 3)
    return first >> 2 & 0xF, at + 1 + count, int.from_bytes(data[at + 1 : at + 1 + count], "big")


def _fingerprint(body: bytes) -> str:
    if body[:1] != bytes([VERSION]):
        raise ValueError(f"holds a key of OpenPGP version {body[0] if body else 0}, not {VERSION}")
    if len(body) > LARGEST_KEY:
        raise ValueError(f"holds a key of {len(body)} bytes; the maximum is {LARGEST_KEY}")
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False).hexdigest().upper()
