"""Fingerprints of OpenPGP keys, computed here and compared with what GnuPG says of the same file."""

from __future__ import annotations

import base64

import pytest

from rigup.operations.apt.openpgp import binary, fingerprints

ARMOURED = b"""\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawEOshYJKwYBBAHaRw8BAQdAsVSHB7ctUt0o2+v64bo9Tn7Lww9oQIYW0tl+
5GQ/ScW0J0Ega2V5IGZvciB0ZXN0cyBvbmx5IDxub2JvZHlAbG9jYWxob3N0PoiQ
BBMWCAA4FiEEwt5LeR4KO+jLBiX7MyKQacN0cDcFAmsBDrICGwMFCwkIBwIGFQoJ
CAsCBBYCAwECHgECF4AACgkQMyKQacN0cDfs3wEAy2XqsLPlD4ZAozDA0Xi3EsmT
DwRxRHuDmL6tmxgeWF4A/3G2p8y4sRO/VULdTiBOSTu11h3kND9/pEHYuJO1f5cH
=h6Uv
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "C2DE4B791E0A3BE8CB0625FB33229069C3747037"


def test_an_armoured_key_and_the_same_in_binary() -> None:
    assert fingerprints(ARMOURED) == fingerprints(binary(ARMOURED)) == (FINGERPRINT,)


def test_both_styles_of_packet_header_are_read() -> None:
    data = binary(ARMOURED)
    assert data[0] == 0x98, "GnuPG writes the old style"
    body = data[2 : 2 + data[1]]
    assert fingerprints(b"\xc6" + bytes([len(body)]) + body) == (FINGERPRINT,)
    assert fingerprints(b"\xc6\xff" + len(body).to_bytes(4, "big") + body) == (FINGERPRINT,)


def test_every_key_of_a_file_counts() -> None:
    assert fingerprints(binary(ARMOURED) * 2) == (FINGERPRINT, FINGERPRINT)
    assert fingerprints(ARMOURED + ARMOURED) == (FINGERPRINT, FINGERPRINT)


def test_one_bit_makes_another_key() -> None:
    data = bytearray(binary(ARMOURED))
    data[30] ^= 1
    assert fingerprints(bytes(data)) != (FINGERPRINT,)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>not found</html>",
        binary(ARMOURED)[:40],
        binary(ARMOURED)[:1],
        ARMOURED.replace(b"mDM", b"!!!", 1),
        b"\xc6\x02\x03\x00",
        base64.b64encode(binary(ARMOURED)),
    ],
    ids=["empty", "page", "cut", "one byte", "not base64", "version 3", "bare base64"],
)
def test_what_is_not_a_key_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        fingerprints(data)


def test_a_key_over_64_kib_is_refused() -> None:
    body = b"\x04" + bytes(2**16)
    with pytest.raises(ValueError, match="holds a key of 65537 bytes; the maximum is 65535"):
        fingerprints(b"\xc6\xff" + len(body).to_bytes(4, "big") + body)
