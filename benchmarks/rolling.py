"""What 40 clients of a gateway see while everything behind it changes, on lab machines. As root, as a script.

    python benchmarks/rolling.py [--clients 40] [--hosts 3] [--streams 100] [--skip driver,power] [--build ARCHIVE]

A gateway and three hosts, fitted out by rigup. The engine is the real llama.cpp with a real small model, on the
processor: its server comes from ARCHIVE, a build that rigup keeps in the user's cache (default: the newest; rigup makes
one for any host without GPUs whose `builder` is "controller"). The hosts' GPUs are simulated, for a driver that can
change. Half of the clients stream, each on a connection that it keeps. A grammar makes the engine say the same words
each time, and every answer is checked word by word. Meanwhile rigup rolls out a release, takes it back, rolls out
another build of the engine, and another driver, with reboots. Then what nobody plans: a host loses power, the gateway
is killed. Last, for comparison, the services are restarted by systemctl without what rigup's units do before a stop.
Prints Markdown; ends with 1 if a planned change cost an answer. TTFT: medians of streams in turn, through the gateway
and direct.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rigup.cache import cache_folder  # noqa: E402
from rigup.lab import demo_model  # noqa: E402
from rigup.lab.gpus.simulated import SimulatedGpus  # noqa: E402
from rigup.lab.hub.server_process import StandInHub  # noqa: E402
from tests.lab.fleet import Host, wait_for  # noqa: E402
from tests.lab.fleet_fixtures import made_lab  # noqa: E402
from tests.lab.gpu_fleet import NEW, OLD, RIG, GpuFleet  # noqa: E402

SECONDS = 1800
MODEL, PORT = "smollm2-135m-instruct", 8080
TEXT = "one two three four five six seven eight nine ten"
KEYS = {"backends": "backend-key-0123456789", "team-a": "client-key-of-team-a"}
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
PLAIN = "/etc/systemd/system/rigup-chat.service.d/plain.conf"
# "load CLIENTS PAUSE ADDRESS KEY": asks until a file says that it is enough; prints what it saw.
# "ttft STREAMS ADDRESS KEY ADDRESS KEY": the median milliseconds until the first word, of streams at each in turn.
CLIENT = (
    f"TEXT, MODEL = {TEXT!r}, {MODEL!r}"
    + """
import collections, http.client, json, os, statistics, sys, threading, time
what, *words = sys.argv[1:]
ASKED = {"messages": [{"role": "user", "content": "Count."}], "grammar": f'root ::= "{TEXT}"', "max_tokens": 50}
def ask(link, key, stream):
    body = json.dumps({**ASKED, "stream": stream, "model": MODEL})
    head = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    began = time.monotonic()
    link.request("POST", "/v1/chat/completions", body, head)
    reply = link.getresponse()
    if reply.status != 200:
        reply.read()
        return f"status {reply.status}", None
    if not stream:
        choice = json.loads(reply.read())["choices"][0]
        return check([choice["message"]["content"]], choice["finish_reason"], True), None
    said, why, done, first = [], None, False, None
    for line in reply:
        if line.startswith(b"data: [DONE]"):
            done = True
        elif line.startswith(b"data: "):
            choice = json.loads(line[6:])["choices"][0]
            why = choice["finish_reason"] or why
            if choice["delta"].get("content"):
                first = first or time.monotonic() - began
                said.append(choice["delta"]["content"])
    return check(said, why, done), first
def check(said, why, done):
    return "ok" if ("".join(said), why, done) == (TEXT, "stop", True) else "truncated"
def client(stream, pause, address, key):
    link = http.client.HTTPConnection(address, timeout=120)
    while not os.path.exists("/run/enough"):
        began = time.monotonic()
        try:
            result, _ = ask(link, key, stream)
            if result == "truncated":
                link.close()
        except http.client.IncompleteRead:
            result = "truncated"
            link.close()
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            result = type(error).__name__
            link.close()
        seen[result] += 1
        longest[0] = max(longest[0], time.monotonic() - began)
        time.sleep(pause)
if what == "load":
    seen, longest = collections.Counter(), [0.0]
    how = [(number % 2 == 0, float(words[1]), *words[2:]) for number in range(int(words[0]))]
    threads = [threading.Thread(target=client, args=one) for one in how]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(json.dumps({"seen": seen, "longest_s": round(longest[0], 1)}))
else:
    links = [(http.client.HTTPConnection(place, timeout=60), key) for place, key in (words[1:3], words[3:5])]
    times = []
    for _ in range(int(words[0])):
        links[0][0].close()  # the engine ends a connection after a stream
        times.append([ask(link, key, True)[1] * 1000 for link, key in links])
    print(json.dumps([statistics.median(one) for one in zip(*times)]))
"""
)
# Puts a compiled engine where llama.cpp's own build would.
CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(engine NONE)
set(bin ${CMAKE_BINARY_DIR}/bin)
foreach(name llama-server ggml-rpc-server)
  add_custom_target(${name} ALL COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/engine ${bin}/${name})
endforeach()
"""


def newest_build() -> Path:
    """The newest build of llama.cpp for the processor in the user's cache."""
    found = sorted(
        (cache_folder() / "builds/controller").glob("llama.cpp-*.tar.gz"), key=lambda one: one.stat().st_mtime
    )
    if not found:
        raise SystemExit(
            "no build of llama.cpp in the cache: run pytest tests/slow/llama_cpp/test_draining.py, or pass --build"
        )
    return found[-1]


def engine_archive(build: Path) -> bytes:
    """A source archive whose compilation yields the server of this build."""
    with tarfile.open(build) as tar:
        (name,) = (name for name in tar.getnames() if name.endswith("/bin/llama-server"))
        server = tar.extractfile(name)
        assert server is not None
        files = {"CMakeLists.txt": (CMAKE.encode(), 0o644), "engine": (server.read(), 0o755)}
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w") as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(f"engine/{name}")
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(unpacked.getvalue(), mtime=0)


def write_lock(root: Path, archive: bytes) -> None:
    """Writes a lock with the model and this engine."""
    checkpoint = demo_model.checkpoint()
    (file,) = checkpoint.files
    (root / "rigup.lock").write_text(
        f'schema = 1\n[[checkpoints]]\nrepo = "{checkpoint.repo}"\nquant = "{checkpoint.quant}"\n'
        f'revision = "{checkpoint.revision}"\n'
        f'[[checkpoints.files]]\npath = "{file.path}"\nsize = {file.size}\nsha256 = "{file.sha256}"\n'
        '[[sources]]\nengine = "llama.cpp"\nversion = "b11434"\naddress = "https://example.org/engine.tar.gz"\n'
        f'sha256 = "{hashlib.sha256(archive).hexdigest()}"\nroot = "engine"\n'
    )


class Rig:
    """The fleet: its last machine is the gateway."""

    def __init__(self, fleet: GpuFleet, archive: bytes, clients: int, pause: float) -> None:
        self.fleet, self.archive, self.clients, self.pause = fleet, archive, clients, pause
        self.boxes, self.gateway = fleet.hosts[:-1], fleet.hosts[-1]
        self.context, self.driver = 1024, OLD

    def describe(self) -> None:
        """Writes the fleet's files."""
        chat = {
            "model": "SmolLM2-135M-Instruct",
            "context": self.context,
            "gpus": [0],
            "listen": "0.0.0.0",
            "api_key_file": "secrets/backends.key",
            "served_name": MODEL,
            "concurrency": 16,
            "flags": {"--threads": 1},
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
        self.context = 512
        self.roll()

    def new_build(self) -> None:
        """The engine from other bytes of its archive."""
        other = gzip.compress(gzip.decompress(self.archive), mtime=1)
        before, after = (hashlib.sha256(one).hexdigest() for one in (self.archive, other))
        (self.fleet.cache / "rigup/sources" / after).write_bytes(other)
        self.fleet.base_lock = self.fleet.base_lock.replace(before, after)
        self.roll()

    def new_driver(self) -> None:
        """Another driver, for which every host reboots."""
        boots = [host.machine.boot_id() for host in self.boxes]
        for host in self.boxes:  # a stranger's process on a card: the modules cannot be exchanged without a reboot
            SimulatedGpus(host.machine).use(1)
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
            host.machine.ssh("systemctl restart rigup-chat", timeout=400, check=True)
            wait_for(lambda host=host: answers(host), "the service to answer")  # type: ignore[misc]
            time.sleep(2)

    def under_load(self, change: Callable[[], object]) -> dict[str, Any]:
        """What the clients have seen meanwhile."""
        host = self.gateway
        host.tell("rm -f /run/enough")
        words = f"python3 /run/client.py load {self.clients} {self.pause} 127.0.0.1:{PORT} {KEYS['team-a']}"
        host.tell(f"systemd-run --quiet --collect --unit=load --property=StandardOutput=file:/run/seen {words}")
        time.sleep(3)
        began = time.monotonic()
        change()
        seconds = time.monotonic() - began
        host.tell("touch /run/enough; while systemctl is-active --quiet load; do sleep 0.2; done")
        found: dict[str, Any] = json.loads(host.tell("cat /run/seen"))
        return {**found, "seconds": seconds}

    def ttft(self, streams: int) -> tuple[float, float]:
        """Milliseconds until the first word of a stream: direct and through the gateway."""
        direct, through = f"{self.boxes[0].machine.inner_address}:8000", f"127.0.0.1:{PORT}"
        words = f"python3 /run/client.py ttft {streams} {direct} {KEYS['backends']} {through} {KEYS['team-a']}"
        found = json.loads(self.gateway.machine.ssh(words, timeout=600, check=True).stdout)
        return found[0], found[1]


def answers(host: Host) -> bool:
    """Whether its service is up."""
    return host.machine.ssh("curl -sf -m 2 127.0.0.1:8000/health").returncode == 0


def measure(rig: Rig, skip: list[str], streams: int) -> int:
    """Every change in turn; the number of answers that planned ones cost."""
    rig.gateway.machine.ssh("cat > /run/client.py", input=CLIENT, check=True)
    direct, through = rig.ttft(streams)
    print(
        f"TTFT: {direct:.1f} ms direct, {through:.1f} ms through the gateway, idle; {rig.clients} clients\n", flush=True
    )
    print(
        "| change | failed | truncated | requests | longest s | s | load |\n|---|---|---|---|---|---|---|", flush=True
    )
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
        row += f" {os.getloadavg()[0]:.0f} |"
        print(row, {kind: count for kind, count in seen.items() if kind != "ok"} or "", flush=True)
    return lost


def main() -> int:
    """Brings the machines up, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--hosts", type=int, default=3, help="behind the gateway")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds of a client between its requests")
    parser.add_argument("--streams", type=int, default=100, help="of which the TTFT is the median")
    parser.add_argument("--skip", default="", help="release, rollback, build, driver, power, gateway, plain")
    parser.add_argument("--build", type=Path, default=None, metavar="ARCHIVE", help="of llama.cpp for the processor")
    arguments = parser.parse_args()
    archive = engine_archive(arguments.build or newest_build())
    INSTANCES.write_text(str(max(1024, int(INSTANCES.read_text()))))
    name = f"rolling{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder, made_lab(name, hosts=arguments.hosts + 1, rig=RIG) as lab:
        root, cache = Path(folder, "fleet"), Path(folder, "cache")
        (cache / "rigup/sources").mkdir(parents=True)
        (cache / "rigup/sources" / hashlib.sha256(archive).hexdigest()).write_bytes(archive)
        root.mkdir()
        write_lock(root, archive)
        fleet = GpuFleet(lab, StandInHub.start(demo_model.provide(), lab=name), root, cache)
        try:
            rig = Rig(fleet, archive, arguments.clients, arguments.pause)
            rig.describe()
            rig.rigup("apply", "--reboot")
            return int(measure(rig, arguments.skip.split(","), arguments.streams) > 0)
        finally:
            fleet.end_runs()


if __name__ == "__main__":
    sys.exit(main())
