"""Whatever stops a service, the answers that are being read end whole: on booted machines, read from another one.

The engine is the stand-in, which cuts what it streams on SIGTERM. Words are counted, and the end is looked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.lab.fleet import UNIT, Fleet, Run, wait_for
from tests.lab.readers import Readers, all_whole

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "rollback", "gateways")]

KEY = "a-key-of-the-tests-0123456789"
LEASE = "/run/rigup/lease/lease.seen"
INSTALL = (
    "command -v nft >/dev/null && exit; apt-get update -qq && "
    "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nftables"
)
# An engine that counts what it is asked, and closes connections as uvicorn does: 5 s after an answer, never before one.
KEEPS_OPEN = """
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        open("/run/asked", "a").write("asked ")
        self.send_response(200); self.send_header("Content-Length", "30"); self.end_headers()
        for _ in range(30):
            self.wfile.write(b"x"); self.wfile.flush(); time.sleep(0.1)
        self.connection.settimeout(5)
http.server.ThreadingHTTPServer(("0.0.0.0", 8700), Handler).serve_forever()
"""
# A connection without a request; another with an answer that is read while the port closes, then a further request on
# it; then a new connection.
CLIENT = """
import http.client, socket, sys
silent = socket.create_connection((sys.argv[1], 8700))
kept = http.client.HTTPConnection(sys.argv[1], 8700, timeout=20)
kept.request("POST", "/", b"first")
print("whole" if kept.getresponse().read() == b"x" * 30 else "cut", flush=True)
for connection in (kept, http.client.HTTPConnection(sys.argv[1], 8700, timeout=20)):
    try:
        connection.request("POST", "/", b"second")
        print("answered", connection.getresponse().status, flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
print(silent.recv(1) or "closed by the engine")
"""


@pytest.fixture
def readers(fleet: Fleet) -> Iterator[Readers]:
    """Readers of a service that the other machine reaches."""
    key = fleet.root / "chat.key"
    key.write_text(KEY + "\n")
    key.chmod(0o600)
    describe(fleet)
    fleet.apply()
    made = Readers(fleet.host, fleet.hosts[1], KEY)
    yield made
    fleet.host.tell(f"systemctl kill --signal=KILL {UNIT} || true")
    made.close()
    fleet.host.wipe()


def describe(fleet: Fleet, **service: Any) -> None:
    fleet.describe(listen="0.0.0.0", api_key_file="chat.key", **{"drain_timeout": 60, **service})


def started(fleet: Fleet) -> str:
    """When the engine started."""
    return fleet.host.show("ExecMainStartTimestampMonotonic")


def test_an_apply_and_a_rollback_wait_for_what_is_read(fleet: Fleet, readers: Readers) -> None:
    words = 250
    before, begun = started(fleet), readers.begin(words)
    describe(fleet, context=4096)
    run = fleet.start("apply", "--yes", "--json")
    wait_for(lambda: fleet.host.show("ActiveState") == "ActiveState=deactivating", "the service to stop")
    beat = fleet.host.tell(f"cat {LEASE}")
    wait_for(lambda: fleet.host.tell(f"cat {LEASE}") != beat, "the lease to be renewed")
    assert fleet.host.show("ActiveState") == "ActiveState=deactivating"
    assert started(fleet) == before
    assert all_whole(begun, words)
    assert run.wait() == 0, run.text
    assert "--ctx-size 4096" in fleet.host.tell(f"cat /etc/systemd/system/{UNIT}")

    words = 50
    begun = readers.begin(words)
    fleet.rigup("rollback", "--yes")
    assert all_whole(begun, words)
    assert "--ctx-size 8192" in fleet.host.tell(f"cat /etc/systemd/system/{UNIT}")


def test_a_reboot_waits_for_what_is_read(fleet: Fleet, readers: Readers) -> None:
    words = 60
    begun = readers.begin(words)
    fleet.host.machine.reboot()
    assert all_whole(begun, words)
    wait_for(lambda: fleet.host.machine.ssh(f"systemctl is-active {UNIT}").stdout.strip() == "active", UNIT)


def test_an_apply_waits_no_longer_than_the_service_says(fleet: Fleet, readers: Readers) -> None:
    describe(fleet, drain_timeout=2)
    fleet.apply()
    begun, began = readers.begin(600), time.monotonic()
    describe(fleet, drain_timeout=2, context=4096)
    fleet.apply()
    assert time.monotonic() - began < 40
    assert not any("[DONE]" in answer.result() for answer in begun)
    assert "drain: connections cut after 2 s: 3" in fleet.host.tell(f"journalctl -o cat -u {UNIT}")


def test_ctrl_c_ends_no_answer_and_leaves_the_service_running(fleet: Fleet, readers: Readers) -> None:
    words = 250  # longer than an apply takes to come to the stop, on a busy machine, too
    begun = readers.begin(words)
    describe(fleet, context=4096)
    run: Run = fleet.start("apply", "--yes")
    wait_for(lambda: fleet.host.show("ActiveState") == "ActiveState=deactivating", "the service to stop")
    run.interrupt()
    assert all_whole(begun, words)
    assert run.wait() == 130, run.text
    wait_for(lambda: fleet.host.show("ActiveState") == "ActiveState=active", "the service to start")


def test_a_closed_port_lets_an_answer_end_and_takes_no_request(fleet: Fleet) -> None:
    host, unit = fleet.host, "rigup-keeps-open.service"
    fleet.apply()
    host.tell(INSTALL)
    host.machine.ssh("cat > /run/engine.py", input=KEEPS_OPEN, check=True)
    fleet.hosts[1].machine.ssh("cat > /run/client.py", input=CLIENT, check=True)
    program = "/usr/bin/python3 -EsS /opt/rigup/programs/drain.py"
    host.tell(
        f"rm -f /run/asked; systemd-run -q --unit={unit} -p KillMode=mixed -p TimeoutStopSec=60 "
        f"-p 'ExecStop=-+{program} {unit} 8700 55' -p 'ExecStopPost=-+{program} {unit}' python3 /run/engine.py"
    )
    wait_for(lambda: host.says("ss -Hltn sport = :8700 | grep -q ."), "the engine to listen")
    client = f"python3 /run/client.py {host.machine.inner_address}"
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(lambda: fleet.hosts[1].machine.ssh(client).stdout)
        wait_for(lambda: host.says("test -s /run/asked"), "the answer to begin")
        host.tell(f"systemctl stop {unit}")
        assert "connections cut" not in host.tell(f"journalctl -o cat -u {unit}")
        assert read.result().splitlines() == [
            "whole",
            "ConnectionResetError",
            "ConnectionRefusedError",
            "closed by the engine",
        ]
    assert host.tell("cat /run/asked") == "asked"
    assert "drain_rigup" not in host.tell("nft list tables")
    host.tell("rm -f /run/asked /run/engine.py")
