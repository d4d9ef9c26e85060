"""The adversaries of a rehearsal: root of one host, a hub, a peer on the LAN, and a client beside a service.

Each leaves a second, honest host alone, which must come out right whatever they do.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rigup import layout
from rigup.lab.lab import Lab
from rigup.lab.network.addresses import cdn_address, hub_address
from rigup.lab.network.listening_server import listen
from rigup.lab.network.network import lab_socket
from tests.hostile import HOSTILE, is_harmless
from tests.lab.fleet import ANSWER, FILES, REPO, UNIT, WEIGHTS, Fleet, Host, Run, content_of
from tests.unit.sources.hostile_server import head, serve

API_KEY = "sk-of-the-honest-service-0123456789abcdef"
HUB_TOKEN = "hf_ofTheFleetNobodyElseMaySeeThis"
MARKER = "planted-by-the-hostile-host"
MOST_MIB = 300
SERVICE = layout.service_folder("chat")
BEHAVIOUR = "/run/adversary"
HEARD = "/var/tmp/heard"
HUB_PORT = 8099
HUB_TRIES = 2
GREETED = "/usr/bin/timeout"
"""What every greeting runs as root, and no question of the tests does."""
REPLACED = (GREETED, "/usr/bin/hostname", "/usr/sbin/nginx")
SAYS = f"{HOSTILE} ".encode("utf-8", "surrogatepass") + b"M\xfcll \xff\x00\n"

_GREETED = f"""#!/bin/sh
case "$(cat {BEHAVIOUR} 2>/dev/null)" in
flood) exec cat /dev/zero ;;
lines) exec yes "" ;;
errors) cat /dev/zero >&2; exit ;;
silent) exec sleep 1000 ;;
liar) cat {BEHAVIOUR}.says >&2 ;;
esac
exec {GREETED}.right "$@"
"""


@dataclass
class Watched:
    """A run of rigup that has ended: its exit code, how long it took, and the most memory that it had."""

    run: Run
    code: int
    seconds: float
    mib: int

    @property
    def text(self) -> str:
        """All that it printed."""
        return self.run.text

    @property
    def json(self) -> dict[str, Any]:
        """What it printed for scripts."""
        return self.run.json

    def check(self, expect: int | None, seconds: float) -> None:
        """Holds what must be true of every run with a hostile party. expect: its exit code, None where luck decides."""
        assert self.code == expect or (expect is None and self.code in (0, 1, 2)), self.text
        assert self.seconds < seconds, f"{self.seconds:.0f} s\n{self.text}"
        assert 0 < self.mib < MOST_MIB, f"{self.mib} MiB"
        assert "Traceback" not in self.text, self.text
        assert is_harmless(self.text.replace("\r\n", "\n")), ascii(self.text)
        assert API_KEY not in self.text and HUB_TOKEN not in self.text


class Parties(Fleet):
    """Two hosts: the first is anybody's, the second honest. Both serve `chat` behind an API key."""

    @property
    def hostile(self) -> Host:
        """The host whose root is the adversary."""
        return self.hosts[0]

    @property
    def honest(self) -> Host:
        """The other one."""
        return self.hosts[1]

    def settle(self, context: int = 8192, **settings: Any) -> None:
        """Describes both; `settings` are further keys of group_data."""
        for name, secret in (("chat.key", API_KEY), ("hub.token", HUB_TOKEN)):
            (self.root / name).write_text(f"{secret}\n")
            (self.root / name).chmod(0o600)
        self.describe(2, builder=None, context=context, listen="0.0.0.0", api_key_file="chat.key", start_timeout=10)
        data = self.root / "group_data/boxes.py"
        said = {"hub_token_file": "hub.token", "weights_sharing": {"from_mb": 0}, **settings}
        data.write_text(data.read_text() + "".join(f"{key} = {value!r}\n" for key, value in said.items()))

    def watch(self, *words: str, expect: int | None = 0, seconds: float = 60, before: str = "") -> Watched:
        """Runs `rigup words` to its end, within all bounds."""
        began, most = time.monotonic(), 0
        run = self.start(*words, before=before)
        status = Path(f"/proc/{run.process.pid}/status")
        while run.process.poll() is None:
            with suppress(OSError, StopIteration, IndexError):
                line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
                most = max(most, int(line.split()[1]) // 1024)
            if time.monotonic() - began > 2 * seconds:
                run.kill()
            time.sleep(0.05)
        watched = Watched(run, run.wait(), time.monotonic() - began, most)
        watched.check(expect, seconds)
        return watched

    def honest_serves(self, context: int = 8192) -> bool:
        """Whether the honest host runs what it should and answers, and holds nothing of the other's."""
        ask = f"curl -s -H 'Authorization: Bearer {API_KEY}' -d '{{}}' http://127.0.0.1:8000/v1/chat/completions"
        everywhere = " ".join((*layout.ROOTS, layout.RUNTIME, layout.LOG, "/var/tmp", "/tmp", "/root"))
        return (
            ANSWER in self.honest.machine.ssh(ask).stdout
            and f"--ctx-size {context}" in self.honest.tell(f"cat /etc/systemd/system/{UNIT}")
            and not self.honest.says(f"grep -rqsa {MARKER} {everywhere}")
        )


def turn_hostile(host: Host, behaviour: str = "liar") -> None:
    """From now on root there answers rigup as it likes: "liar", or see `_GREETED`."""
    write(host, GREETED, _GREETED)
    write(host, f"{BEHAVIOUR}.says", SAYS)
    host.tell(f"echo {behaviour} > {BEHAVIOUR}")
    if behaviour != "liar":
        return
    write(host, "/usr/bin/hostname", "#!/bin/sh\necho 0.0.0.0/0 ::/0 10.0.0.1\n")
    write(host, f"{BEHAVIOUR}.json", json.dumps({"build": HOSTILE, "number": [1], "by": MARKER}))
    host.tell(
        f"cat {BEHAVIOUR}.json > {SERVICE}/current/release.json; "
        f"for file in {layout.LOG}/*; do cat {BEHAVIOUR}.says {BEHAVIOUR}.json >> $file; echo '[1]' >> $file; done; "
        f"cp -r {layout.BUILDS}/llama.cpp-* {layout.BUILDS}/.result-planted; "
        f"for file in {layout.BUILDS}/*/manifest.json {layout.BUILDS}/*/bin/*; do echo '# {MARKER}' >> $file; done; "
        f"for file in {WEIGHTS}/{REPO}/*/*.bin; do echo {MARKER} >> $file; done; "
        f"systemd-cat -t rigup-chat < {BEHAVIOUR}.says; printf 'cat {BEHAVIOUR}.says\\n' > /root/.bashrc"
    )


def turn_honest(host: Host) -> None:
    """Undoes all of this; what a liar has changed of rigup's is gone."""
    lied = host.machine.ssh(f"cat {BEHAVIOUR}").stdout.endswith("liar\n")
    host.tell(
        f"for name in {' '.join(REPLACED)}; do test ! -e $name.right || mv $name.right $name; done; "
        f"rm -rf {BEHAVIOUR}* /root/.bashrc"
    )
    if lied:
        host.tell(f"rm -rf {layout.LOG}")
        host.wipe()


def write(host: Host, path: str, content: str | bytes) -> None:
    """Puts a file onto a host, that may be run; what was there is kept beside it."""
    data = content.encode() if isinstance(content, str) else content
    keep = f"test ! -e {path} || test -e {path}.right || cp -p {path} {path}.right"
    put = f"base64 -d > {path}.new && chmod 755 {path}.new && mv {path}.new {path}"
    host.machine.ssh(f"{keep}; {put}", input=base64.b64encode(data).decode(), check=True)


@dataclass
class Hub:
    """A hostile hub inside a lab's network. url: its address. redirected: what came where it redirects to."""

    url: str
    asked: list[str] = field(default_factory=list)
    redirected: list[str] = field(default_factory=list)


@contextmanager
def hostile_hub(lab: Lab, answers: dict[str, Callable[[str], Iterable[bytes | float]]]) -> Iterator[Hub]:
    """Answers the first requests for each file by its name, and refuses all after them, which ends the waiting.

    answers: take the address of somebody else, to redirect to.
    """
    number = lab.record.number
    addresses = hub_address(number), cdn_address(number)
    hub = Hub(f"http://{addresses[0]}:{HUB_PORT}")

    def answer(request: str) -> Iterable[bytes | float]:
        name = request.split()[1].partition("?")[0].rpartition("/")[2]
        hub.asked.append(request)
        if sum(name in each.split()[1] for each in hub.asked) > HUB_TRIES:
            return [head("Content-Length: 0", status="404 Not Found")]
        return answers[name](f"http://{addresses[1]}:{HUB_PORT}/{name}")

    def steal(request: str) -> Iterable[bytes | float]:
        hub.redirected.append(request)
        return [head("Content-Length: 4"), b"evil"]

    with ExitStack() as listening:
        for address, script in zip(addresses, (answer, steal), strict=True):
            one = listening.enter_context(listen(lab_socket(lab.record.name), (address, HUB_PORT)))
            threading.Thread(target=serve, args=(one, script), daemon=True).start()
        yield hub


def endless(_elsewhere: str) -> Iterator[bytes | float]:
    """A body without a length and without an end."""
    yield head()
    while True:
        yield bytes(65536)


def bomb(_elsewhere: str) -> Iterator[bytes | float]:
    """A gigabyte of zeros in a few megabytes."""
    yield head("Content-Encoding: gzip", "Content-Type: application/json")
    yield gzip.compress(bytes(2**30), 1)


def redirect(elsewhere: str) -> Iterator[bytes | float]:
    """To somebody else, who would like to see the token."""
    yield head(f"Location: {elsewhere}", "Content-Length: 0", status="302 Found")


def hostile_peer(host: Host) -> None:
    """Has the host offer all files to its peers and send other bytes, drips and a body without end."""
    write(host, "/usr/sbin/nginx", _PEER.replace("NAME", repr(host.name)).replace("FILES", repr(sums())))


def sums() -> list[str]:
    """The sha256 of every file of the checkpoint."""
    return [hashlib.sha256(content_of(name)).hexdigest() for name in FILES]


_PEER = """#!/usr/bin/python3
import http.server, json, re, sys, time
name, files = NAME, FILES
state = {"host": name, "have": files, "fetching": {}, "claims": files, "hashing": [], "hub_bytes": 0}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        if self.path.startswith("/state/"):
            return self.send(json.dumps(state).encode())
        which = files.index(self.path.rpartition("/")[2])
        if which == 0:
            return self.send(bytes(8_000_000))
        if which == 1:
            self.send_header("Content-Length", "8000000")
        self.end_headers()
        while True:
            self.wfile.write(b"x" if which == 1 else bytes(65536))
            time.sleep(0.2 if which == 1 else 0)
    def send(self, body):
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
address, port = re.search(r"listen ([^ ;]+):(\\d+);", open(sys.argv[sys.argv.index("-c") + 1]).read()).groups()
http.server.ThreadingHTTPServer((address, int(port)), Handler).serve_forever()
"""

CLIENT = f"""
import socket, threading, time
def heard(data):
    open({HEARD!r}, "ab").write(data + b"\\n")
def bind():
    while True:
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind(("0.0.0.0", 8000))
                taken.listen(64)
            except OSError:
                time.sleep(0.002)
                continue
            taken.settimeout(4)
            try:
                while True:
                    connection, _ = taken.accept()
                    with connection:
                        heard(connection.recv(65536))
                        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{{}}")
            except OSError:
                pass
        time.sleep(3)
def flood():
    while True:
        try:
            with socket.create_connection(("127.0.0.1", 8000), 1) as connection:
                connection.sendall(b"POST /v1/chat/completions HTTP/1.1\\r\\nX: " + bytes(60000))
        except OSError:
            pass
        time.sleep(0.05)
for work in (bind, flood, flood):
    threading.Thread(target=work).start()
"""
"""Floods a service's port, and listens there whenever nobody else does."""
