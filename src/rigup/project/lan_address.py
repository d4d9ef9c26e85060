"""`lan_address` of a host: where the other hosts of its fleet reach it, if not at the address that SSH connects to."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from rigup.errors import InputError

KEY = "lan_address"
_HINT = "set the address at which other hosts reach this one, or leave it out to use the one that SSH connects to"


def lan_address(data: Mapping[str, Any]) -> str | None:
    """The address that a host's data gives; None if it gives none.

    Raises InputError, beginning with the key, for an address that no other host can reach.
    """
    value = data.get(KEY)
    if value is None:
        return None
    try:
        address = ipaddress.ip_address(str(value))
    except ValueError:
        raise InputError(f'{KEY}: "{value}" is not an IP address', _HINT) from None
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        raise InputError(f"{KEY}: other hosts cannot reach {value}", _HINT)
    return str(address)
