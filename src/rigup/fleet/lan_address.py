"""`lan_address` of a host: where the others of its fleet reach it, if not at the address that SSH uses."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from rigup.errors import InputError

KEY = "lan_address"
_HINT = "the address at which the other hosts reach this one; without it the host is asked for its addresses"


def lan_address(data: Mapping[str, Any]) -> str | None:
    """The address that the data of a host gives it; None where they say nothing.

    Raises InputError, beginning with the key, for what is no address that another host could reach.
    """
    said = data.get(KEY)
    if said is None:
        return None
    try:
        address = ipaddress.ip_address(str(said))
    except ValueError:
        raise InputError(f'{KEY}: "{said}" is not an IP address', _HINT) from None
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        raise InputError(f"{KEY}: no other host reaches {said}", _HINT)
    return str(address)
