"""The address of an endpoint that is measured or evaluated, and its request heads.

`check` is called with every new connection before a request, with the API key, is sent on it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


class EndpointError(Exception):
    """An endpoint cannot be measured as requested: a message, a hint, and the kind of error.

    kind: "input" (the user's mistake), "unreachable" or "failed".
    """

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.hint = kind, message, hint


def unchecked(_: socket.socket) -> None:
    """Accepts any connection: used for an address from the user, whose unit is unknown."""


@dataclass(frozen=True)
class Target:
    """Where requests go. prefix: the path before /v1. key: never printed. check: raises OSError for a foreign port."""

    host: str
    port: int
    prefix: str = ""
    key: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    check: Callable[[socket.socket], None] = unchecked

    @classmethod
    def of(cls, url: str, key: str | None, check: Callable[[socket.socket], None] = unchecked) -> Target:
        """Parses an address with or without /v1 at its end. Raises EndpointError for an invalid one.

        The error does not repeat parts that may hold a secret: results, logs and process lists show the address.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            parts, port = urlsplit(""), 0
        if "@" in url or "?" in url or "#" in url:
            problem = "an endpoint address must not contain a user or a query"
            raise EndpointError("input", problem, "pass a key in a file: --api-key-file")
        if parts.scheme not in ("http", "https") or not parts.hostname or not port:
            raise EndpointError(
                "input", f'"{url}" is not the address of an endpoint', "use an address such as http://127.0.0.1:8000"
            )
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        return cls(parts.hostname, port, prefix, key, tls, check)

    @property
    def url(self) -> str:
        """The address as a user would write it."""
        return f"{'https' if self.tls else 'http'}://{self.netloc}{self.prefix}"

    @property
    def netloc(self) -> str:
        """Host and port, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def head(self, path: str, length: int, name: str = "") -> bytes:
        """The head of a request; length: bytes of its JSON body, 0 for GET. name: the request's id."""
        lines = [f"{'POST' if length else 'GET'} {self.prefix}{path} HTTP/1.1", f"Host: {self.netloc}"]
        lines += ["Content-Type: application/json", f"Content-Length: {length}"] if length else []
        lines += [f"Authorization: Bearer {self.key}"] if self.key else []
        lines += [f"X-Request-Id: {name}"] if name else []
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def addresses(self) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
        """The host name's addresses. Raises EndpointError if it cannot be resolved."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError:
            raise EndpointError(
                "unreachable", f"{self.url}: unknown host name {self.host}", "check the spelling"
            ) from None
        return [(family, address) for family, _, _, _, address in found]
