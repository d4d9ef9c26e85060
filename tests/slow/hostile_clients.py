"""Clients of a gateway that mean it no good, as a program. Python's standard library only.

usage: hostile_clients.py PORT KEY MODEL SLOW

Prints JSON: for each attack what was answered. SLOW: how many connections never end the head of their request.
"""

from __future__ import annotations

import json
import resource
import select
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

PORT, KEY, MODEL, SLOW = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
CHAT = "/v1/chat/completions"
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
# What a request that hides another one wants to reach the engine with: its own endpoint, without any key.
HIDDEN = "GET /slots HTTP/1.1\r\nHost: x\r\n\r\n"
SECONDS = 20.0
NAMES = (f"{MODEL}\n", f"{MODEL}\r\nX: y", "a\0b", "%[env(PATH)]", '"}', "x" * 100_000)


def connect(address: str = "127.0.0.1") -> socket.socket:
    """A connection to the gateway, from one of this machine's addresses."""
    return socket.create_connection(("127.0.0.1", PORT), timeout=SECONDS, source_address=(address, 0))


def statuses(sent: bytes) -> list[str]:
    """The status of each answer on a connection on which this was sent, until it ends or nothing more comes."""
    with connect() as link:
        with suppress(OSError):
            link.sendall(sent)
        said = b""
        link.settimeout(10)
        with suppress(OSError):
            while part := link.recv(65536):
                said += part
    return [line.split(" ")[1] for line in said.decode(errors="replace").splitlines() if line.startswith("HTTP/1.")]


def request(body: bytes, *headers: str, head: str = HEAD) -> list[str]:
    """The statuses after one request with this body and further headers."""
    lines = "".join(f"{line}\r\n" for line in (*headers, "Connection: close"))
    return statuses(f"{head}{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def asked(model: str) -> list[str]:
    """The statuses after a question to a model."""
    return request(json.dumps({"messages": [], "model": model}).encode())


def smuggled() -> dict[str, list[str]]:
    """The statuses after requests whose length can be read in two ways, by how."""
    body = json.dumps({"messages": [], "model": MODEL})
    chunked = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
    framings = {
        "two lengths": ("Content-Length: 6\r\nContent-Length: 60", body),
        "list of lengths": ("Content-Length: 6, 60", body),
        "signed length": (f"Content-Length: +{len(body)}", body),
        "unknown coding": ("Transfer-Encoding: xchunked", chunked),
        "two codings": ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", chunked),
        "space before the colon": ("Transfer-Encoding : chunked", chunked),
        "folded": ("X: y\r\n Transfer-Encoding: chunked", chunked),
        "bare line feed": ("X: y\nTransfer-Encoding: chunked", chunked),
        "chunk of another size": ("Transfer-Encoding: chunked", f"5x\r\n{body}\r\n0\r\n\r\n"),
    }
    return {how: statuses(f"{HEAD}{lines}\r\n\r\n{sent}{HIDDEN}".encode()) for how, (lines, sent) in framings.items()}


def endless() -> int:
    """MiB of a body without an end that are taken before the connection is cut."""
    piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    sent = 0
    with connect() as link:
        link.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        with suppress(OSError):
            while sent < 200:
                link.sendall(piece)
                sent += 1
    return sent


def slow_heads() -> dict[str, object]:
    """Connections that send a byte a second: what is answered to the others meanwhile, and how they end."""
    links = [connect() for _ in range(SLOW)]
    for link in links:
        link.sendall(HEAD.encode())
        link.setblocking(False)
    ends: dict[socket.socket, str] = {}
    others: list[str] = []
    began = time.monotonic()
    while len(ends) < SLOW and time.monotonic() - began < 40:
        others += asked(MODEL)
        for link in links:
            if link not in ends:
                with suppress(OSError):
                    link.send(b"X")
        there, _, _ = select.select([link for link in links if link not in ends], [], [], 1)
        for link in there:
            said = b""
            with suppress(OSError):
                said = link.recv(4096)
            ends[link] = said.partition(b" ")[2][:3].decode()
    seconds = time.monotonic() - began
    for link in links:
        link.close()
    return {
        "ends": sorted(set(ends.values())),
        "ended": len(ends),
        "seconds": seconds,
        "asked": len(others),
        "others": sorted(set(others)),
    }


def flood(address: str, sent: bytes, piece: bytes, rounds: int) -> list[str]:
    """What others are answered while one address without a key has all connections that it gets.

    sent: on each of 8,200; piece: afterwards on each that is left, so many times.
    """
    links: list[socket.socket] = []
    others: list[str] = []
    for number in range(8200):
        with suppress(OSError):
            link = connect(address)
            links.append(link)
            link.sendall(sent)
        if number % 500 == 0:
            others += asked(MODEL)
    for link in links:
        link.setblocking(False)
    for _ in range(rounds):
        for link in links:
            with suppress(OSError):
                link.send(piece)
    others += asked(MODEL)
    for link in links:
        link.close()
    return others


def slow_body(head: str) -> tuple[str, float]:
    """The status and the seconds until the connection ends, for a body of a byte a second."""
    began, said = time.monotonic(), b""
    with connect() as link:
        link.sendall(head.encode())
        link.settimeout(1)
        while time.monotonic() - began < 100:
            with suppress(TimeoutError):
                try:
                    part = link.recv(4096)
                    said += part
                    if not part:
                        break
                except ConnectionError:
                    break
            with suppress(OSError):
                link.send(b" ")
    return said.partition(b" ")[2][:3].decode(), time.monotonic() - began


def slow_bodies() -> dict[str, tuple[str, float]]:
    """All at once, by how."""
    length, chunks = "Content-Length: 5000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nfff\r\n"
    heads = {
        "length": HEAD + length,
        "chunks": HEAD + chunks,
        "no key": f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n{length}",
        "no endpoint": HEAD.replace(CHAT, "/v1/nothing") + length,
        "health": f"GET /health HTTP/1.1\r\nHost: x\r\n{length}",
    }
    with ThreadPoolExecutor(len(heads)) as pool:
        return dict(zip(heads, pool.map(slow_body, heads.values()), strict=True))


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(20_000, most), most))
    found = {
        "model": [asked(name) for name in NAMES],
        "key": {
            how: statuses(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode("latin-1"))
            for how, key in {
                "null": f"{KEY[:8]}\0{KEY[8:]}",
                "null at the end": f"{KEY}\0",
                "long": "k" * 60_000,
            }.items()
        },
        "huge": statuses(f"{HEAD}Content-Length: {10 * 2**30}\r\n\r\n".encode()),
        "endless_mib": endless(),
        "smuggled": smuggled(),
        "slow": slow_heads(),
        "slow_bodies": slow_bodies(),
        "floods": {
            "idle": flood("127.0.0.2", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"", 0),
            "silent": flood("127.0.0.3", b"", b"", 0),
            "long heads": flood("127.0.0.4", b"GET / HTTP/1.1\r\nX: ", b"x" * 65536, 40),
        },
    }
    print(json.dumps(found))
