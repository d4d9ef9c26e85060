"""While a service is down any local user can listen on its port: nobody there is told the service's API key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.fleet import Fleet, wait_for

pytestmark = pytest.mark.lab

KEY = "sk-of-the-service-thirty-two-letters"
HEARD = "/var/tmp/heard"
# answers like an engine, and notes all that it is told
STRANGER = f"""
import http.server, json
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
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""
# the harness is not run: what would be told to it is not let through before
NO_HARNESS = (
    "import pathlib, sys, rigup.cli.eval as verb; verb._harness = lambda root: (pathlib.Path(sys.executable), '0')"
)


@pytest.fixture
def taken(fleet: Fleet) -> Iterator[Fleet]:
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
    host.tell("systemd-run --quiet --collect --uid=nobody --unit=stranger python3 /run/stranger.py")
    wait_for(lambda: host.says("curl -sf 127.0.0.1:8000/health"), "the stranger")
    assert host.says(f"test -s {HEARD}")
    yield fleet
    host.tell(f"systemctl stop stranger; rm -f {HEARD} /run/stranger.py; systemctl start rigup-chat")


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
    whose = f"port 8000 belongs to user nobody (pid {pid}, python3), not to rigup-chat.service"
    for run in asked.values():
        assert whose in " ".join(run.text.split())
