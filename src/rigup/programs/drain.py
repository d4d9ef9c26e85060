"""Runs as root when systemd stops a service: the requests in flight end before the engine is told to.

usage: drain.py UNIT PORT SECONDS    before the engine gets its signal; $MAINPID is the unit's main process
       drain.py UNIT                 after it has ended: the port takes connections again

On SIGTERM, llama-server cuts what it streams, without an error. vLLM goes on listening while it drains, and gives new
requests an empty answer; SGLang takes new ones, and may never be done. So the port is closed first. A new connection is
refused, as after the stop. On a connection that exists, the next request is refused as well: a packet that begins with
GET or POST can only be that, because a client sends nothing while it reads an answer. A refused request was never seen
by the engine, so it can be sent elsewhere. After an answer, engines close a connection that brings no further request
within 5 s: cpp-httplib, and uvicorn as vLLM and SGLang configure it. uvicorn never closes one that brought none at all,
such as one whose first request was refused here, or one that a browser opened in advance. So what is waited for is the
connections on which something was received: each has a request in flight, or ends soon.

Without nft new requests are still answered, and this ends at the first moment without connections.
After SECONDS the unit's main process is killed, since llama-server would wait for its clients without answering them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

NFT = "/usr/sbin/nft"
SS = "/usr/bin/ss"
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
ESTABLISHED = "01"
POLL_SECONDS = 0.1
SAY_SECONDS = 10.0
# The payload follows a TCP header of 20 bytes, or of 32 with timestamps, which Linux sends with every segment.
PAYLOADS = {5: 160, 8: 256}
METHODS = {int.from_bytes(word, "big") for word in (b"GET ", b"POST")}


def table(unit: str) -> str:
    """The table's family and name. Firewalls of node groups begin with "rigup_"; nft accepts no hyphen."""
    return f"inet drain_{unit.removesuffix('.service').replace('-', '_')}"


def closing(unit: str, port: int) -> str:
    """What nft reads to close the port. A table of an earlier stop is replaced."""
    name, methods = table(unit), ", ".join(f"{method:#x}" for method in sorted(METHODS))
    rules = [f"tcp dport {port} tcp flags & (syn | ack) == syn reject with tcp reset"]
    rules += [
        f"tcp dport {port} tcp doff {words} @th,{at},32 {{ {methods} }} reject with tcp reset"
        for words, at in PAYLOADS.items()
    ]
    chain = f"add chain {name} input {{ type filter hook input priority filter - 10; policy accept; }}"
    added = (f"add rule {name} input {rule}" for rule in rules)
    return "\n".join((f"add table {name}", f"delete table {name}", f"add table {name}", chain, *added))


def opening(unit: str) -> str:
    """What nft reads to open the port again."""
    return f"add table {table(unit)}\ndelete table {table(unit)}"


def run_nft(text: str) -> str:
    """Has nft execute these lines; returns why it could not, "" otherwise."""
    try:
        done = subprocess.run((NFT, "-f", "-"), input=text, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip().partition("\n")[0]


def connections(port: int) -> int:
    """How many established connections lead to this port of the host."""
    end = f":{port:04X}"
    found = 0
    for path in TABLES:
        try:
            lines = Path(path).read_text().splitlines()[1:]
        except OSError:
            continue
        fields = (line.split() for line in lines)
        found += sum(words[1].endswith(end) and words[3] == ESTABLISHED for words in fields)
    return found


def with_requests(port: int) -> int:
    """How many of them have received anything. Without ss, which knows that, all of them count."""
    try:
        words = (SS, "-HtniO", "state", "established", f"sport = :{port}")
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return connections(port)
    return sum(" bytes_received:" in line for line in done.stdout.splitlines())


def wait(port: int, seconds: float) -> int:
    """Waits until no connection with a request is left, or for that long; returns how many are left."""
    began = time.monotonic()
    said = began - SAY_SECONDS
    while left := with_requests(port):
        now = time.monotonic()
        if now - began >= seconds:
            return left
        if now - said >= SAY_SECONDS:
            print(f"drain: connections left: {left}, for {seconds - (now - began):.0f} s at most", flush=True)
            said = now
        time.sleep(POLL_SECONDS)
    return 0


def main(words: list[str]) -> None:
    """Runs the usage's first or second line."""
    unit, *rest = words
    if not rest:
        if (why := run_nft(opening(unit))) and Path(NFT).exists():
            print(f"drain: the port may still be closed, see nft list table {table(unit)}: {why}", flush=True)
        return
    port, seconds = int(rest[0]), float(rest[1])
    try:
        # during the wait the number could become another process's
        engine = os.pidfd_open(int(os.environ["MAINPID"]))
    except (KeyError, ProcessLookupError):
        return  # systemd stops a unit, too, whose engine has ended
    if why := run_nft(closing(unit, port)):
        print(f"drain: new requests are still answered: {why}", flush=True)
    if left := wait(port, seconds):
        print(f"drain: connections cut after {seconds:.0f} s: {left}", flush=True)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(engine, signal.SIGKILL)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    main(sys.argv[1:])
