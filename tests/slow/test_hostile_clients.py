"""Hostile clients of HAProxy with the rendered files: none reaches an engine, nobody waits, the process lives on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.gateway.test_haproxy_running import KEY, Engine, ask, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("haproxy", path="/usr/sbin:/usr/bin") is None, reason="haproxy is not installed"),
    pytest.mark.rests_on("gateways"),
]
CLIENTS = Path(__file__).with_name("hostile_clients.py")
SLOW = 500
# What heads of an address may take, 3,500 of 64 KiB, and the rest.
MOST_KIB = (224 + 150) * 1024


def test_they_reach_no_engine_and_harm_nobody(tmp_path: Path) -> None:
    engine = Engine()
    with running(tmp_path, {"small": [engine.server_port]}) as port:
        (process,) = subprocess.check_output(["pgrep", "-f", str(tmp_path / "haproxy.cfg")], text=True).split()
        words = [sys.executable, str(CLIENTS), str(port), KEY, "small", str(SLOW)]
        seen = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=240, check=True).stdout)

        assert {tuple(statuses) for statuses in seen["model"]} == {("400",), ("404",)}
        assert {status for statuses in seen["key"].values() for status in statuses} <= {"400", "401"}
        assert all(seen["key"].values())
        assert seen["huge"] == ["413"]
        assert seen["endless_mib"] < 20
        # HAProxy has no option against a lone line feed, which RFC 9112, 2.2, lets end a line: for it, and in what it
        # sends to the engine, so that there is one request, read in one way
        read = seen["smuggled"].pop("bare line feed")
        assert read[0] == "200" and "200" not in read[1:]
        assert {how: statuses for how, statuses in seen["smuggled"].items() if statuses != ["400"]} == {}
        slow = seen["slow"]
        assert (slow["ends"], slow["ended"], slow["others"]) == ([""], SLOW, ["200"])
        # one byte a second: a minute with a key, and not read at all without
        ends = {how: end for how, (end, _) in seen["slow_bodies"].items()}
        assert ends == {"length": "408", "chunks": "408", "no key": "401", "no endpoint": "404", "health": "200"}
        for how, (end, seconds) in seen["slow_bodies"].items():
            assert seconds < (75 if end == "408" else 10), how
        assert slow["seconds"] < 30
        others = [status for statuses in seen["floods"].values() for status in statuses]
        assert {*others} == {"200"}
        assert len(engine.heard) == slow["asked"] + 1 + len(others)

        assert ask(port, {"model": "small"})[0] == 200
        status = Path("/proc", process, "status").read_text()
        assert int(status.partition("VmHWM:")[2].split()[0]) < MOST_KIB
        # beside them HAProxy says that the engine was late, if the machine is busy
        lines = [line for line in (tmp_path / "log").read_text().splitlines() if not line.startswith("[WARNING]")]
        assert [line for line in lines if not isinstance(json.loads(line), dict)] == []
        assert KEY not in str(lines)
    engine.end()
