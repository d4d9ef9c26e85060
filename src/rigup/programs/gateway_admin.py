"""Runs on a gateway: sends commands to HAProxy through its admin socket, which only root and HAProxy's group can open.

usage: gateway_admin.py SOCKET < COMMANDS

COMMANDS: a JSON list of texts; one with several lines has a payload, as in "add map". Prints a JSON list with the
answer to each. Ends with 1 and one line of text if the socket does not answer. Python 3.10 standard library only.
"""

from __future__ import annotations

import json
import socket
import sys

ANSWER_SECONDS = 10.0
MOST_BYTES = 16 * 2**20


def answer(path: str, command: str) -> str:
    """What HAProxy answers to one command. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(ANSWER_SECONDS)
        link.connect(path)
        # a payload ends with an empty line
        link.sendall(f"{command}\n\n".encode() if "\n" in command else f"{command}\n".encode())
        found = bytearray()
        while part := link.recv(65536):
            found += part
            if len(found) > MOST_BYTES:
                raise OSError(f"more than {MOST_BYTES} bytes")
    return found.decode(errors="replace").strip()


def main(path: str) -> int:
    """Reads the commands, prints the answers."""
    try:
        print(json.dumps([answer(path, command) for command in json.load(sys.stdin)]))
    except OSError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
