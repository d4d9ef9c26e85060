"""Checks URLs in settings before rigup writes them into a file, a journal or a record. Pure."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from rigup.errors import InputError

LONGEST = 2000
_PRINTABLE = re.compile(r"[!-~]+")


def web_address(
    key: str, value: Any, *, hint: str, login_hint: str, schemes: tuple[str, ...] = ("https", "http")
) -> str:
    """The URL in a setting, checked.

    key: starts the messages. hint: what to write instead. login_hint: where a user name and password belong.
    Raises InputError if the value is not a URL, or contains a user name, a password, a query or a fragment.
    """
    address = str(value)
    harmless = address.isprintable() and "@" not in address and len(address) <= LONGEST
    shown = f'"{address}"' if harmless else "the value"
    not_one = InputError(f"{key}: {shown} is not a URL", hint)
    try:
        parts = urlsplit(address)
        valid = (parts.port is None or parts.port > 0) and bool(
            parts.hostname or (parts.scheme == "file" and parts.path)
        )
    except ValueError:
        raise not_one from None
    if not _PRINTABLE.fullmatch(address) or len(address) > LONGEST or not valid or parts.scheme not in schemes:
        raise not_one
    if "@" in parts.netloc:
        raise InputError(f"{key}: the URL contains a user name or password", login_hint)
    if parts.query or parts.fragment:
        raise InputError(f"{key}: the URL contains a query or a fragment", hint)
    return address
