"""Single blocking requests, used before an endpoint is measured."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

from rigup.programs.bench.bench_target import EndpointError, Target
from rigup.programs.http_reader import exchange, printable
from rigup.programs.http_reader import parsed as strictly_parsed
from rigup.programs.listeners import ForeignPort

HEALTH_SECONDS = 15.0
# for metrics and lists of models
MOST_BODY = 1 << 24


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


def ask_json(target: Target, path: str, content: Any = None, seconds: float = HEALTH_SECONDS) -> tuple[int, Any]:
    """Like `ask`, with JSON in both directions; the content is None if the response is not JSON."""
    status, response = ask(target, path, json.dumps(content).encode() if content is not None else b"", seconds)
    return status, parsed(response[0])


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
