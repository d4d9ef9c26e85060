"""The network of a lab, in a mount and network namespace of the test's own: made whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ALLOCATE = """
from rigup.errors import RigupError
from rigup.lab.network import network
try:
    print(network.allocate())
except RigupError as error:
    print(error.message)
print(sorted(path.name for path in network.NAMESPACES.glob("*")))
"""
IP = """#!/bin/sh
case "$*" in *"{words}"*) echo "ip: $NO" >&2; exit 2;; esac
PATH=${{PATH#*:}} exec ip "$@"
"""


@pytest.fixture(autouse=True)
def namespaces_can_be_made() -> None:
    """Skips where they cannot; with RIGUP_REQUIRE_LAB=1 that is a failure."""
    words = ["unshare", "--mount", "--net", "sh", "-c", "ip -V"]
    if subprocess.run(words, capture_output=True).returncode:
        assert os.environ.get("RIGUP_REQUIRE_LAB") != "1"
        pytest.skip("this test makes namespaces, which needs root and iproute2")


def allocate(folder: Path, refused: str) -> list[str]:
    """What is printed where a number is allocated with an `ip` that refuses some words, no network being there yet."""
    program = folder / "ip"
    program.write_text(IP.format(words=refused))
    program.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}{os.pathsep}/usr/sbin"
    words = f"mkdir -p /run/netns && mount -t tmpfs none /run/netns && exec {sys.executable} -c '{ALLOCATE}'"
    done = subprocess.run(
        ["unshare", "--mount", "--net", "sh", "-c", words],
        env={**os.environ, "PATH": path, "NO": "not supported", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_network_is_made(tmp_path: Path) -> None:
    assert allocate(tmp_path, "nothing of this kind") == ["1", "['rigup-1']"]


def test_a_network_that_cannot_be_made_whole_is_not_left_behind(tmp_path: Path) -> None:
    failed = "ip -n rigup-1 link add bridge type bridge: exited with 2"
    assert allocate(tmp_path, "type bridge") == [failed, "ip: not supported", "[]"]


def test_where_no_namespace_can_be_made_the_reason_is_said(tmp_path: Path) -> None:
    failed = "ip netns add rigup-1: exited with 2"
    assert allocate(tmp_path, "netns add") == [failed, "ip: not supported", "[]"]
