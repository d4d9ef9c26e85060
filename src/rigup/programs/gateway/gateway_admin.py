"""Runs on a gateway: sends commands to HAProxy through its admin socket, which only root and HAProxy can open.

usage: gateway_admin.py SOCKET < COMMANDS

COMMANDS: a JSON list of texts; one with several lines has a payload, as in "add map". Prints a JSON list with the
answer to each; that to "show map" is the SHA-256 of its sorted entries, some of which are keys. Ends with 1 and one
line of text if the socket does not answer.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import time

TOTAL_SECONDS = 20.0
MOST_BYTES = 16 * 2**20


def answer(path: str, command: str, deadline: float) -> str:
    """What HAProxy answers to one command. Raises OSError, also where it is not whole by the deadline."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(seconds_left(deadline))
        link.connect(path)
        # a payload ends with an empty line
        link.sendall(f"{command}\n\n".encode() if "\n" in command else f"{command}\n".encode())
        found = bytearray()
        while part := link.recv(65536):
            link.settimeout(seconds_left(deadline))
            found += part
            if len(found) > MOST_BYTES:
                raise OSError(f"more than {MOST_BYTES} bytes")
    return found.decode(errors="replace").strip()


def seconds_left(deadline: float) -> float:
    """Raises TimeoutError if it is over."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def shown(command: str, said: str) -> str:
    """What may be printed of an answer. The lines of a map begin with a pointer."""
    if not command.startswith("show map "):
        return said
    entries = sorted(line.partition(" ")[2] for line in said.splitlines() if line.startswith("0x"))
    return hashlib.sha256("\n".join(entries).encode()).hexdigest()


def main(path: str) -> int:
    """Reads the commands, prints the answers."""
    deadline = time.monotonic() + TOTAL_SECONDS
    try:
        print(json.dumps([shown(command, answer(path, command, deadline)) for command in json.load(sys.stdin)]))
    except OSError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
