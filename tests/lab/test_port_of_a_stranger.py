"""While a service is down any local user can listen on its port: nobody reaches it, or tells it the service's key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rigup.systemd.port_guard import closing_unit
from tests.lab.fleet import Fleet, wait_for

pytestmark = [
    pytest.mark.lab,
    pytest.mark.rests_on("the run", "benchmarks of services", "evaluation", "src/rigup/connection/tunnel.py"),
]

KEY = "sk-of-the-service-thirty-two-letters"
HEARD = "/var/tmp/heard"
# answers like an engine, and notes all that it is told
STRANGER = f"""
import http.server, json, socket, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        open({HEARD!r}, "ab").write(str(self.headers).encode() + said)
        completion = {{"choices": [{{"message": {{"content": "Hi."}}}}], "usage": {{"completion_tokens": 1}}}}
        body = json.dumps({{"data": [{{"id": "smollm2-135m-instruct"}}], **completion}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
Server((sys.argv[1], 8000), Handler).serve_forever()
"""
LISTEN = "systemd-run --quiet --collect --uid=nobody --unit=stranger python3 /run/stranger.py"
LISTENS = "ss -Hltn sport = :8000"
LATER = "/etc/systemd/system/rigup-chat.service.d/later.conf"
# the harness is not run: what would be told to it is not let through before
NO_HARNESS = (
    "import pathlib, sys, rigup.cli.eval as verb; verb._harness = lambda root: (pathlib.Path(sys.executable), '0')"
)


@pytest.fixture
def guarded(fleet: Fleet) -> Iterator[Fleet]:
    """A fleet whose service has a key and is down, and on whose port somebody else listens."""
    host = fleet.host
    (fleet.root / "chat.key").write_text(f"{KEY}\n")
    (fleet.root / "chat.key").chmod(0o600)
    fleet.describe(listen="0.0.0.0", api_key_file="chat.key")
    fleet.apply()
    fleet.apply()  # from now on the host asks the service with every greeting
    assert fleet.rigup("status", "--json").json["hosts"]
    host.tell(f"systemctl stop rigup-chat; rm -f {HEARD}")
    host.machine.ssh("cat > /run/stranger.py", input=STRANGER, check=True)
    host.tell(f"{LISTEN} 0.0.0.0")
    wait_for(lambda: host.says(f"{LISTENS} | grep -q ."), "the stranger")
    yield fleet
    host.tell(f"systemctl stop stranger; rm -f {HEARD} /run/stranger.py {LATER}; systemctl daemon-reload")
    host.tell("systemctl restart rigup-chat")


@pytest.fixture
def taken(guarded: Fleet) -> Fleet:
    """The same on a host without a firewall: somebody has opened the port."""
    guarded.host.tell(f"systemctl stop {closing_unit(8000)}")
    wait_for(lambda: guarded.host.says("curl -sf 127.0.0.1:8000/health"), "the stranger")
    assert guarded.host.says(f"test -s {HEARD}")
    return guarded


def reached(fleet: Fleet) -> list[bool]:
    """Whether the process that listens there answers on its own machine, and to another one."""
    address = fleet.host.machine.inner_address
    return [host.says(f"curl -sf -m 5 {address}:8000/health") for host in fleet.hosts[:2]]


def test_a_stranger_on_the_port_of_a_stopped_service_is_reached_by_nobody(guarded: Fleet) -> None:
    host = guarded.host
    assert (reached(guarded), host.says(f"test -e {HEARD}")) == ([False, False], False)
    # after a boot, too, before the service has started
    host.machine.ssh(f"mkdir -p $(dirname {LATER}); cat > {LATER}", input="[Service]\nExecCondition=/bin/false\n")
    host.machine.reboot()
    host.machine.ssh("cat > /run/stranger.py", input=STRANGER, check=True)
    host.tell(f"{LISTEN} 0.0.0.0")
    wait_for(lambda: host.says(f"{LISTENS} | grep -q ."), "the stranger")
    assert (reached(guarded), host.says(f"test -e {HEARD}")) == ([False, False], False)
    host.tell(f"systemctl stop stranger; rm {LATER}; systemctl daemon-reload; systemctl restart rigup-chat")
    wait_for(lambda: reached(guarded) == [True, True], "the service to answer")
    # the service has the addresses of IPv4, and somebody else one of IPv6
    host.tell(f"{LISTEN} ::1")
    wait_for(lambda: host.says(f"{LISTENS} src [::1] | grep -q ."), "the stranger beside the service")
    assert not host.says("curl -sf -m 5 'http://[::1]:8000/health'")
    assert not host.says(f"test -e {HEARD}")


def test_a_port_that_a_service_leaves_is_open_again(guarded: Fleet) -> None:
    host = guarded.host
    assert host.says("nft list table inet port_8000")
    guarded.describe(listen="0.0.0.0", api_key_file="chat.key", port=8010)
    guarded.apply()
    assert not host.says("nft list table inet port_8000")
    assert host.says("nft list table inet port_8010")
    assert reached(guarded) == [True, True]
    guarded.describe(port=8010)
    guarded.apply()
    assert not host.says("nft list table inet port_8010")


def test_the_key_is_told_to_nobody(taken: Fleet) -> None:
    host = taken.host
    asked = {
        "status": taken.rigup("status", expect=1),
        "bench": taken.rigup("bench", "--requests", "1", expect=1),
        "eval": taken.rigup("eval", "--tasks", "anything", expect=1, before=NO_HARNESS),
    }
    for verb, run in asked.items():
        print(verb, run.text, sep="\n")
    heard = host.tell(f"cat {HEARD}")
    assert KEY not in heard and "Authorization" not in heard
    pid = host.show("MainPID", "stranger").partition("=")[2]
    for run in asked.values():
        assert f"port 8000 belongs to user nobody (pid {pid}, python3), " in " ".join(run.text.split())
