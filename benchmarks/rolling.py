"""What 40 clients of a gateway see while everything behind it changes, on lab machines. As root, as a script.

    python benchmarks/rolling.py [--clients 40] [--hosts 3] [--skip driver,power]

A gateway and three hosts with simulated GPUs, fitted out by rigup; the engine is the tests' stand-in (ten words a
second, cut by SIGTERM, as llama.cpp cuts). Half of the clients stream, each on a connection that it keeps, and every
answer is checked word by word. Meanwhile rigup rolls out a release, takes it back, rolls out another build of the
engine, and another driver, with reboots. Then what nobody plans: a host loses power, the gateway is killed. Last, for
comparison, the services are restarted by systemctl without what rigup's units do before a stop.
Prints Markdown; ends with 1 if a planned change cost an answer. TTFT: medians, through the gateway and direct.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rigup.lab.lab import Lab  # noqa: E402
from tests.lab.fleet import Host, wait_for  # noqa: E402
from tests.lab.fleet_fixtures import engine_archive, made_site  # noqa: E402
from tests.lab.gpu_fleet import NEW, OLD, RIG, GpuFleet  # noqa: E402

SECONDS = 1800
MODEL, PORT, WORDS = "smollm2-135m-instruct", 8080, 15
KEYS = {"backends": "backend-key-0123456789", "team-a": "client-key-of-team-a"}
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
PLAIN = "/etc/systemd/system/rigup-chat.service.d/plain.conf"
# Asks until a file says that it is enough; prints what it saw. With an address and a key: the TTFT of 200 streams.
CLIENT = """
import collections, http.client, json, os, statistics, sys, threading, time
words, model, clients, address, key = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]
WHOLE = [f"word{n} " for n in range(words)] + ["[DONE]"]
seen, longest = collections.Counter(), [0.0]
def ask(link, stream):
    body = json.dumps({"model": model, "messages": [], "stream": stream, "max_tokens": words}, separators=(",", ":"))
    link.request("POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {key}"})
    began, reply = time.monotonic(), link.getresponse()
    if stream:
        reply.read(1)
    first = time.monotonic() - began
    text = reply.read().decode()
    if reply.status != 200:
        return f"status {reply.status}", first
    if not stream:
        said = json.loads(text)["choices"][0]["message"]["content"]
        return ("ok" if said == "The capital of France is Paris." else "truncated"), first
    lines = [line[5:].strip() for line in ("d" + text).splitlines() if line]
    said = [line if line == "[DONE]" else json.loads(line)["choices"][0]["delta"]["content"] for line in lines]
    return ("ok" if said == WHOLE else "truncated"), first
def client(stream):
    link = http.client.HTTPConnection(address, timeout=120)
    while not os.path.exists("/run/enough"):
        began = time.monotonic()
        try:
            result, _ = ask(link, stream)
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            result = type(error).__name__
            link.close()
        seen[result] += 1
        longest[0] = max(longest[0], time.monotonic() - began)
        time.sleep(0.3)
if clients:
    threads = [threading.Thread(target=client, args=(number % 2 == 0,)) for number in range(clients)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(json.dumps({"seen": seen, "longest_s": round(longest[0], 1)}))
else:
    link = http.client.HTTPConnection(address, timeout=60)
    print(statistics.median(ask(link, True)[1] for _ in range(200)) * 1000)
"""


class Folders:
    """pytest's factory of temporary folders, as far as the fleet needs it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def mktemp(self, name: str) -> Path:
        """A new folder."""
        return Path(tempfile.mkdtemp(prefix=name, dir=self.root))


class Rig:
    """The fleet: its last machine is the gateway."""

    def __init__(self, fleet: GpuFleet, clients: int) -> None:
        self.fleet, self.clients = fleet, clients
        self.boxes, self.gateway = fleet.hosts[:-1], fleet.hosts[-1]
        self.context, self.driver = 8192, OLD

    def describe(self) -> None:
        """Writes the fleet's files."""
        chat = {
            "model": "SmolLM2-135M-Instruct",
            "context": self.context,
            "gpus": [0],
            "listen": "0.0.0.0",
            "api_key_file": "secrets/backends.key",
            "served_name": MODEL,
        }
        self.fleet.describe_gpus(self.driver, services={"chat": chat})
        entries = [host.machine.inventory for host in self.fleet.hosts]
        (self.fleet.root / "inventories/rehearsal.py").write_text(
            f"boxes = {entries[:-1]!r}\nedge = {entries[-1:]!r}\n"
        )
        gateway = {"clients": {"team-a": {"key_file": "secrets/team-a.key"}}}
        (self.fleet.root / "group_data/edge.py").write_text(f"gateway = {gateway!r}\n")
        (self.fleet.root / "secrets").mkdir(exist_ok=True)
        for name, key in KEYS.items():
            file = self.fleet.root / f"secrets/{name}.key"
            file.write_text(f"{key}\n")
            file.chmod(0o600)

    def rigup(self, *words: str) -> None:
        """Runs a verb to its end."""
        run = self.fleet.start(*words, "--yes")
        if run.wait(SECONDS):
            raise SystemExit(run.text)

    def roll(self, *words: str) -> None:
        """A rolling apply."""
        self.describe()
        self.rigup("apply", "--rolling", "1", *words)

    def new_release(self) -> None:
        """Another context."""
        self.context = 4096
        self.roll()

    def new_build(self) -> None:
        """The engine from other bytes of its archive."""
        archive = engine_archive()
        other = gzip.compress(gzip.decompress(archive), mtime=1)
        before, after = (hashlib.sha256(one).hexdigest() for one in (archive, other))
        (self.fleet.cache / "rigup/sources" / after).write_bytes(other)
        self.fleet.base_lock = self.fleet.base_lock.replace(before, after)
        self.roll()

    def new_driver(self) -> None:
        """Another driver, for which every host reboots."""
        boots = [host.machine.boot_id() for host in self.boxes]
        self.driver = NEW
        self.roll("--reboot")
        print(f"rebooted: {sum(a != b.machine.boot_id() for a, b in zip(boots, self.boxes, strict=True))}", flush=True)

    def lose_power(self) -> None:
        """A host goes dark, and comes back."""
        self.boxes[0].machine.power_off()
        time.sleep(20)
        self.boxes[0].machine.power_on()
        wait_for(lambda: answers(self.boxes[0]), "the host to answer again", 120)
        time.sleep(3)

    def kill_gateway(self) -> None:
        """systemd starts it again."""
        self.gateway.tell("systemctl kill --signal=KILL rigup-gateway")
        time.sleep(5)

    def restart_plainly(self) -> None:
        """`systemctl restart` of one service after another, without what rigup's units do before a stop."""
        for host in self.boxes:
            host.tell(
                f"mkdir -p $(dirname {PLAIN}); printf '[Service]\\nExecStop=\\n' > {PLAIN}; systemctl daemon-reload"
            )
            host.tell("systemctl restart rigup-chat")
            wait_for(lambda host=host: answers(host), "the service to answer")  # type: ignore[misc]
            time.sleep(2)

    def under_load(self, change: Callable[[], object]) -> dict[str, Any]:
        """What the clients have seen meanwhile."""
        host = self.gateway
        host.tell("rm -f /run/enough")
        words = f"python3 /run/client.py {WORDS} {MODEL} {self.clients} 127.0.0.1:{PORT} {KEYS['team-a']}"
        host.tell(f"systemd-run --quiet --collect --unit=load --property=StandardOutput=file:/run/seen {words}")
        time.sleep(3)
        began = time.monotonic()
        change()
        seconds = time.monotonic() - began
        host.tell("touch /run/enough; while systemctl is-active --quiet load; do sleep 0.2; done")
        found: dict[str, Any] = json.loads(host.tell("cat /run/seen"))
        return {**found, "seconds": seconds}

    def ttft(self) -> tuple[float, float]:
        """Milliseconds until the first byte of a stream: direct and through the gateway."""
        direct, through = f"{self.boxes[0].machine.inner_address}:8000", f"127.0.0.1:{PORT}"
        found = []
        for address, key in ((direct, KEYS["backends"]), (through, KEYS["team-a"])):
            said = self.gateway.machine.ssh(f"python3 /run/client.py 1 {MODEL} 0 {address} {key}", timeout=300).stdout
            found.append(float(said))
        return found[0], found[1]


def answers(host: Host) -> bool:
    """Whether its service is up."""
    return host.machine.ssh("curl -sf -m 2 127.0.0.1:8000/health").returncode == 0


def measure(rig: Rig, skip: list[str]) -> int:
    """Every change in turn; the number of answers that planned ones cost."""
    for host in rig.fleet.hosts:
        host.machine.ssh("cat > /run/client.py", input=CLIENT, check=True)
    rig.gateway.machine.ssh("cat > /run/client.py", input=CLIENT, check=True)
    direct, through = rig.ttft()
    print(f"TTFT: {direct:.2f} ms direct, {through:.2f} ms through the gateway; {rig.clients} clients\n", flush=True)
    print("| change | failed | truncated | requests | longest s | s |\n|---|---|---|---|---|---|", flush=True)
    planned = {
        "release": ("another release, rolling", rig.new_release),
        "rollback": ("rollback", lambda: rig.rigup("rollback")),
        "build": ("another build of the engine, rolling", rig.new_build),
        "driver": ("another driver, rolling, with reboots", rig.new_driver),
    }
    unplanned = {
        "power": ("a host loses power", rig.lose_power),
        "gateway": ("the gateway is killed", rig.kill_gateway),
        "plain": ("plain `systemctl restart`, host by host", rig.restart_plainly),
    }
    lost = 0
    for key, (what, change) in {**planned, **unplanned}.items():
        if key in skip:
            continue
        found = rig.under_load(change)
        seen = found["seen"]
        truncated, all_of_them = seen.get("truncated", 0), sum(seen.values())
        failed = all_of_them - seen.get("ok", 0) - truncated
        lost += (failed + truncated) * (key in planned)
        row = f"| {what} | {failed} | {truncated} | {all_of_them} | {found['longest_s']} | {found['seconds']:.0f} |"
        print(row, {kind: count for kind, count in seen.items() if kind != "ok"} or "", flush=True)
    return lost


def main() -> int:
    """Brings the machines up, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--hosts", type=int, default=3, help="behind the gateway")
    parser.add_argument("--skip", default="", help="release, rollback, build, driver, power, gateway, plain")
    arguments = parser.parse_args()
    INSTANCES.write_text(str(max(1024, int(INSTANCES.read_text()))))
    name = f"rolling{os.getpid()}"
    try:
        with tempfile.TemporaryDirectory() as folder:
            site = made_site(Folders(Path(folder)), name, hosts=arguments.hosts + 1, rig=RIG)  # type: ignore[arg-type]
            with site as made:
                rig = Rig(GpuFleet(*made), arguments.clients)
                rig.describe()
                rig.rigup("apply", "--reboot")
                return int(measure(rig, arguments.skip.split(",")) > 0)
    finally:
        for lab in Lab.all():  # what came up of a lab that did not come up whole
            if lab.record.name == name:
                lab.down()


if __name__ == "__main__":
    sys.exit(main())
