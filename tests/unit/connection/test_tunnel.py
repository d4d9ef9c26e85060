"""What goes through the tunnel of an evaluation carries the key: it passes to the service's own unit only."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("tunnelled.py")
UNIT = "rigup-chat.service"


@contextmanager
def tunnelled(own: bool) -> Iterator[subprocess.Popen[str]]:
    """tunnelled.py, which speaks line by line. own: whether its listener is taken for the unit's."""
    words = [sys.executable, str(SCRIPT), UNIT, "own" if own else "foreign"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdin
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    return line(process)


def asked(port: int) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/v1/models", headers={"Authorization": "Bearer secret"})
        with connection.getresponse() as response:
            return response.status


def test_it_leads_to_the_unit_until_its_port_changes_hands() -> None:
    with tunnelled(own=True) as process:
        port = int(line(process))
        assert asked(port) == 200
        assert tell(process, "heard") == "1"
        assert tell(process, "restart") == "done"
        assert asked(port) == 200
        assert tell(process, "heard") == "2"
        assert tell(process, "swap") == "done"
        with pytest.raises((http.client.HTTPException, OSError)):
            asked(port)
        assert tell(process, "heard") == "2"
        assert "now belongs to user" in tell(process, "end")


def test_it_does_not_open_to_somebody_else() -> None:
    with tunnelled(own=False) as process:
        said = line(process)
    assert said.startswith("HostFailed: box: chat: port ") and said.endswith(f"not to {UNIT}")
