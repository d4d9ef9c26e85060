"""An endpoint that is measured or evaluated: its address, heads of requests, and single requests that block.

`check` is called with every new connection before a request, with the API key, is sent on it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from rigup.programs.http_reader import exchange, printable
from rigup.programs.http_reader import parsed as strictly_parsed
from rigup.programs.listeners import ForeignPort

HEALTH_SECONDS = 15.0
# for metrics and lists of models
MOST_BODY = 1 << 24


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


def ask(target: Target, path: str, body: bytes = b"", seconds: float = HEALTH_SECONDS) -> tuple[int, list[bytes]]:
    """Returns the status, and the events or the body of the response. Raises EndpointError if none arrives."""
    try:
        with socket.create_connection((target.host, target.port), min(seconds, HEALTH_SECONDS)) as plain:
            target.check(plain)
            plain.settimeout(seconds)
            with target.tls.wrap_socket(plain, server_hostname=target.host) if target.tls else plain as connection:
                response, events = exchange(connection, target.head(path, len(body)) + body, seconds, most=MOST_BODY)
    except ForeignPort as error:
        raise EndpointError("failed", str(error), "check the service with rigup status") from None
    except TimeoutError:
        raise EndpointError(
            "unreachable",
            f"{target.url}{path}: no answer within {seconds:.0f} s",
            "check whether the service is overloaded",
        ) from None
    except OSError as error:
        raise EndpointError(
            "unreachable", f"{target.url}: {words(error)}", "check that the service is running"
        ) from None
    except ValueError as error:
        raise EndpointError(
            "failed", f"{target.url}{path}: {error}", "check that the address is an engine's API"
        ) from None
    return response.status, events or [response.body]


def reached(target: Target) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """Returns the first address of a host name that accepts connections, which `ask` will use, too.

    Returns the first address if none accepts. Raises EndpointError if the name cannot be resolved.
    """
    first, *others = target.addresses()
    for family, address in (first, *others) if others else ():
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(HEALTH_SECONDS)
            connection.connect(address)
            return family, address
    return first


def ask_json(
    target: Target, path: str, content: Any = None, seconds: float = HEALTH_SECONDS
) -> tuple[int, dict[str, Any]]:
    """Like `ask`, with JSON in both directions; the answer is empty unless it is a JSON object."""
    status, response = ask(target, path, json.dumps(content).encode() if content is not None else b"", seconds)
    answer = parsed(response[0])
    return status, answer if isinstance(answer, dict) else {}


def parsed(text: bytes) -> Any:
    """The parsed JSON; None if invalid."""
    try:
        return strictly_parsed(text)
    except ValueError:
        return None


def complaint(status: int, body: bytes) -> str:
    """An error response in a line: "HTTP 404: The model `x` does not exist."."""
    content = parsed(body)
    detail = content.get("error", content) if isinstance(content, dict) else None
    if isinstance(detail, dict):
        detail = detail.get("message") or detail.get("detail") or detail.get("error")
    text = printable(detail or body.decode(errors="replace"), 160)
    return f"HTTP {status}: {text}" if text else f"HTTP {status}"


def words(error: OSError) -> str:
    """A short text for a connection error."""
    return (error.strerror or str(error) or type(error).__name__).lower()
