"""`lan_address` of a host: where the others of its fleet reach it, if not at the address that SSH uses."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from rigup.errors import InputError

KEY = "lan_address"
_HINT = 'the host\'s own address in the network that the hosts share: ("gpu1.lan", {"lan_address": "192.168.100.10"})'


def lan_address(host: str, data: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> str | None:
    """The address that the data of a host gives it, IPv4; None where they say nothing.

    origins: the file that each key of `data` was read from, for messages. Raises InputError for what is no address.
    """
    said = data.get(KEY)
    if said is None:
        return None
    where = f"{(origins or {}).get(KEY, '')}: {host}: {KEY}".removeprefix(": ")
    try:
        address = ipaddress.IPv4Address(str(said))
    except ValueError:
        raise InputError(f'{where}: "{said}" is not an IPv4 address', _HINT) from None
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        raise InputError(f"{where}: no other host reaches {said}", _HINT)
    return str(address)
