"""One request at a time, waited for: what an endpoint is asked before it is measured. Python 3.10 standard library."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from typing import Any

if __package__:
    from rigup.programs.bench_http import Response, Target, Unusable
else:
    sys.dont_write_bytecode = True
    from bench_http import Response, Target, Unusable  # type: ignore[import-not-found, no-redef]

HEALTH_SECONDS = 15.0


def ask(target: Target, path: str, body: bytes = b"", seconds: float = HEALTH_SECONDS) -> tuple[int, list[bytes]]:
    """The status, and the events of the answer or its body. Raises Unusable where no answer comes."""
    response, events = Response(), []
    try:
        with socket.create_connection((target.host, target.port), min(seconds, HEALTH_SECONDS)) as plain:
            plain.settimeout(seconds)
            with target.tls.wrap_socket(plain, server_hostname=target.host) if target.tls else plain as connection:
                connection.sendall(target.head(path, len(body)) + body)
                while not response.ended:
                    data = connection.recv(1 << 18)
                    if not data:
                        response.close()
                        break
                    events += response.feed(data)
    except TimeoutError:
        raise Unusable("unreachable", f"{target.url}{path}: no answer within {seconds:.0f} s", "is it busy?") from None
    except OSError as error:
        raise Unusable("unreachable", f"{target.url}: {words(error)}", "is the service running there?") from None
    except ValueError as error:
        raise Unusable("failed", f"{target.url}{path}: {error}", "is an engine's API behind this address?") from None
    if not response.ended:
        raise Unusable("failed", f"{target.url}{path}: the answer was cut off", "what does the engine's log say?")
    return response.status, events or [response.body]


def reached(target: Target) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """The first of the addresses of a name that takes connections, as `ask` finds it too; the first where none does.

    Raises Unusable where the name stands for nothing.
    """
    first, *others = target.addresses()
    for family, address in (first, *others) if others else ():
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(HEALTH_SECONDS)
            connection.connect(address)
            return family, address
    return first


def ask_json(target: Target, path: str, content: Any = None, seconds: float = HEALTH_SECONDS) -> tuple[int, Any]:
    """The same with JSON both ways; what comes back is None where it is not JSON."""
    status, said = ask(target, path, json.dumps(content).encode() if content is not None else b"", seconds)
    return status, parsed(said[0])


def parsed(text: bytes) -> Any:
    """What JSON says; None for anything else."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def complaint(status: int, body: bytes) -> str:
    """An error response in a line: "HTTP 404: The model `x` does not exist."."""
    content = parsed(body)
    said = content.get("error", content) if isinstance(content, dict) else None
    if isinstance(said, dict):
        said = said.get("message") or said.get("detail") or said.get("error")
    text = " ".join(str(said or body.decode(errors="replace")).split())[:160]
    return f"HTTP {status}: {text}" if text else f"HTTP {status}"


def words(error: OSError) -> str:
    """What went wrong with a connection, in few words."""
    return (error.strerror or str(error) or type(error).__name__).lower()
