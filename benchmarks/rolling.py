"""What 40 clients of a gateway see while everything behind it changes, on lab machines. As root, as a script.

    python benchmarks/rolling.py [--clients 40] [--hosts 3] [--pairs 200] [--skip driver,power]

A gateway and three hosts, fitted out by rigup. The engine is the real llama.cpp with a real small model, on the
processor, in two versions that rigup compiles once (llama_cpp_versions.py). The hosts' GPUs are simulated, for a driver
that can change. Half of the clients stream, each on a connection that it keeps; every answer is checked word by word
(rolling_client.py). Meanwhile rigup rolls out a release, takes it back, rolls out another version of the engine, and
another driver, with reboots. Then what nobody plans: a host loses power, the gateway is killed. Last, for comparison,
the same change of a release behind nginx, told by reloads, and services that systemctl restarts without what rigup's
units do before a stop.

Prints Markdown, and ends with 1 if
- a planned change cost an answer, or was not the change that it should be;
- the host without power cost more than the answers that it had begun;
- an answer that was not whole ended as if it were, of whatever rigup's own gateway and units had in hand;
- the first word of a stream comes later through the gateway than direct, by more than 2 ms or 5 %. Both are medians
  over pairs, one of each right after the other, in turns. Pairs are added, up to five times as many, until the 95 %
  confidence intervals leave no doubt.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import smallest  # noqa: E402
from benchmarks.llama_cpp_versions import EARLIER, LATER, describe_earlier, source_archive  # noqa: E402
from benchmarks.rolling_client import MODEL  # noqa: E402
from rigup.lab import demo_model  # noqa: E402
from rigup.lab.gpus.simulated import SimulatedGpus  # noqa: E402
from rigup.lab.hub.server_process import StandInHub  # noqa: E402
from tests.lab.fleet import Fleet, Host, wait_for  # noqa: E402
from tests.lab.fleet_fixtures import USED, engine_archive, made_lab  # noqa: E402
from tests.lab.gpu_fleet import NEW, OLD, RIG, GpuFleet  # noqa: E402

SECONDS = 1800
PORT, NGINX_PORT = 8080, 8081
KEYS = {"backends": "backend-key-0123456789", "team-a": "client-key-of-team-a"}
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
PLAIN = "/etc/systemd/system/rigup-chat.service.d/plain.conf"
CLIENT = Path(__file__).with_name("rolling_client.py")
PROCESS = "/proc/$(systemctl show --value --property=MainPID rigup-chat)"
ARGUMENTS, PROGRAM = f"tr '\\0' ' ' < {PROCESS}/cmdline", f"readlink {PROCESS}/exe"
LATER_MS, LATER_SHARE, MOST_ROUNDS = 2.0, 1.05, 5
NGINX = "/run/plain-nginx"
SLOTS = 16


class NotDone(Exception):
    """A change that did not come about. Its text is what rigup said, or what is not as it should be."""


def write_lock(root: Path, archives: dict[str, bytes]) -> None:
    """Writes a lock with the model and these archives by version."""
    checkpoint = demo_model.checkpoint()
    (file,) = checkpoint.files
    (root / "rigup.lock").write_text(
        f'schema = 1\n[[checkpoints]]\nrepo = "{checkpoint.repo}"\nquant = "{checkpoint.quant}"\n'
        f'revision = "{checkpoint.revision}"\n'
        f'[[checkpoints.files]]\npath = "{file.path}"\nsize = {file.size}\nsha256 = "{file.sha256}"\n'
        + "".join(
            f'[[sources]]\nengine = "llama.cpp"\nversion = "{version}"\nroot = "engine"\n'
            f'address = "https://example.org/{version}.tar.gz"\nsha256 = "{hashlib.sha256(archive).hexdigest()}"\n'
            for version, archive in archives.items()
        )
    )


class Rig:
    """The fleet: its last machine is the gateway."""

    def __init__(self, fleet: Fleet, clients: int, pause: float) -> None:
        self.fleet, self.clients, self.pause = fleet, clients, pause
        self.boxes, self.gateway = fleet.hosts[:-1], fleet.hosts[-1]
        self.context, self.driver, self.version = 1024, OLD, EARLIER
        self.lost_power_at = 0.0

    def describe(self) -> None:
        """Writes the fleet's files."""
        chat: dict[str, Any] = {
            "model": "SmolLM2-135M-Instruct",
            "version": self.version,
            "context": self.context,
            "listen": "0.0.0.0",
            "api_key_file": "secrets/backends.key",
            "served_name": MODEL,
            "concurrency": SLOTS,
            "flags": {"--threads": 1},
        }
        if isinstance(self.fleet, GpuFleet):
            self.fleet.describe_gpus(self.driver, services={"chat": {**chat, "gpus": [0]}})
        else:
            self.fleet.describe(**chat)
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
            raise NotDone(run.text)

    def roll(self, *words: str) -> None:
        """A rolling apply."""
        self.describe()
        self.rigup("apply", "--rolling", "1", *words)

    def require(self, what: str, command: str, wanted: str) -> None:
        """Ends the benchmark unless each host answers so."""
        for host in self.boxes:
            if wanted not in (found := host.tell(command)):
                raise NotDone(f"{host.name}: {what}: {found}, not {wanted}")

    def new_release(self) -> None:
        """Another context."""
        self.context = 512
        self.roll()
        self.require("context", ARGUMENTS, f"--ctx-size {512 * SLOTS} ")

    def back(self) -> None:
        """The release before."""
        self.context = 1024
        self.rigup("rollback")
        self.require("context", ARGUMENTS, f"--ctx-size {1024 * SLOTS} ")

    def new_version(self) -> None:
        """The engine in the version after."""
        self.require("engine", PROGRAM, f"llama.cpp-{EARLIER}-")
        self.version = LATER
        self.roll()
        self.require("engine", PROGRAM, f"llama.cpp-{LATER}-")

    def new_driver(self) -> None:
        """Another driver, for which every host reboots."""
        boots = [host.machine.boot_id() for host in self.boxes]
        for host in self.boxes:  # a stranger's process on a card: the modules cannot be exchanged without a reboot
            SimulatedGpus(host.machine).use(1)
        self.driver = NEW
        self.roll("--reboot")
        self.require("driver", "cat /proc/driver/nvidia/version", NEW)
        for host, before in zip(self.boxes, boots, strict=True):
            if host.machine.boot_id() == before:
                raise NotDone(f"{host.name} has not rebooted")

    def lose_power(self) -> None:
        """A host goes dark, and comes back."""
        self.boxes[0].machine.power_off()
        self.lost_power_at = time.time()
        time.sleep(20)
        self.boxes[0].machine.power_on()
        wait_for(lambda: answers(self.boxes[0]), "the host to answer again", 300)
        time.sleep(3)

    def kill_gateway(self) -> None:
        """systemd starts it again."""
        self.gateway.tell("systemctl kill --signal=KILL rigup-gateway")
        time.sleep(5)

    def release_behind_nginx(self) -> None:
        """Another context on one host after another, while nginx is told by reloads which one to leave out."""
        self.context = 768
        self.describe()
        for host in self.boxes:
            self.reload_nginx(without=host)
            wait_for(partial(idle, host), "nothing in flight", 120)
            self.rigup("apply", "--limit", host.name)
            self.reload_nginx()
            time.sleep(2)

    def restart_plainly(self) -> None:
        """`systemctl restart` of one service after another, without what rigup's units do before a stop."""
        for host in self.boxes:
            host.tell(
                f"mkdir -p $(dirname {PLAIN}); printf '[Service]\\nExecStop=\\n' > {PLAIN}; systemctl daemon-reload"
            )
            host.machine.ssh("systemctl restart rigup-chat", timeout=400, check=True)
            wait_for(partial(answers, host), "the service to answer")
            time.sleep(2)

    def start_nginx(self) -> None:
        """nginx in front of the same services, configured as its manual says for streams and retries."""
        install = "apt-get update -q && apt-get install -q -y --no-install-recommends nginx"
        words = f"systemctl mask -q nginx && {install} && systemctl unmask -q nginx && systemctl disable -q nginx"
        self.gateway.machine.ssh(f"export DEBIAN_FRONTEND=noninteractive; {words}", timeout=400, check=True)
        self.write_nginx(None)
        self.gateway.tell(f"systemd-run --quiet --collect --unit=plain-nginx nginx -c {NGINX}.conf")

    def reload_nginx(self, without: Host | None = None) -> None:
        """Tells nginx which hosts there are."""
        self.write_nginx(without)
        self.gateway.tell(f"nginx -c {NGINX}.conf -s reload")
        time.sleep(1)

    def write_nginx(self, without: Host | None) -> None:
        """Its configuration. without: the host that gets no requests."""
        servers = "".join(
            f"server {host.machine.inner_address}:8000{' down' if host is without else ''} max_fails=1 fail_timeout=2s;"
            for host in self.boxes
        )
        text = (
            f"daemon off; worker_processes 2; pid {NGINX}.pid; error_log /dev/null; events {{}}"
            f"http {{ access_log off; upstream engines {{ least_conn; {servers} }} server {{ listen {NGINX_PORT};"
            'location / { proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection "";'
            f'proxy_set_header Authorization "Bearer {KEYS["backends"]}"; proxy_buffering off; proxy_read_timeout 1h;'
            "proxy_next_upstream error timeout http_503 non_idempotent; } } }"
        )
        self.gateway.machine.ssh(f"cat > {NGINX}.conf", input=text, check=True)

    def under_load(self, change: Callable[[], object], port: int) -> dict[str, Any]:
        """What the clients of a port have seen meanwhile."""
        host = self.gateway
        host.tell("rm -f /run/enough")
        words = f"python3 /run/client.py load {self.clients} {self.pause} 127.0.0.1:{port} {KEYS['team-a']}"
        host.tell(f"systemd-run --quiet --collect --unit=load --property=StandardOutput=truncate:/run/seen {words}")
        time.sleep(3)
        began = time.monotonic()
        try:
            change()
        finally:
            seconds = time.monotonic() - began
            host.tell("touch /run/enough; while systemctl is-active --quiet load; do sleep 0.2; done")
        found: dict[str, Any] = json.loads(host.tell("cat /run/seen"))
        return {**found, "seconds": seconds}

    def ttft(self, pairs: int) -> list[tuple[float, float]]:
        """Milliseconds until the first word of a stream, in pairs: direct and through the gateway."""
        direct = ",".join(f"{host.machine.inner_address}:8000" for host in self.boxes)
        words = f"python3 /run/client.py ttft {pairs} 127.0.0.1:{PORT} {KEYS['team-a']} {direct} {KEYS['backends']}"
        found = json.loads(self.gateway.machine.ssh(words, timeout=600, check=True).stdout)
        return [(direct, through) for direct, through in found]


def answers(host: Host) -> bool:
    """Whether its service is up."""
    return host.machine.ssh("curl -sf -m 2 127.0.0.1:8000/health").returncode == 0


def idle(host: Host) -> bool:
    """Whether its engine has no requests."""
    metrics = host.tell(f"curl -sf -H 'Authorization: Bearer {KEYS['backends']}' 127.0.0.1:8000/metrics")
    names = ("llamacpp:requests_processing ", "llamacpp:requests_deferred ")
    return not any(float(line.split()[1]) for line in metrics.splitlines() if line.startswith(names))


def interval(values: list[float]) -> tuple[float, float, float]:
    """The median, and the ends of its 95 % confidence interval by order statistics."""
    ordered, count = sorted(values), len(values)
    beside = 0.98 * count**0.5  # 1.96 standard deviations of how many of them lie below the true median
    ends = (ordered[max(0, int(count / 2 - beside))], ordered[min(count - 1, int(count / 2 + beside))])
    return statistics.median(ordered), *ends


def first_words(rig: Rig, pairs: int) -> list[str]:
    """Prints how much later the first word comes through the gateway; returns what is too much."""
    found: list[tuple[float, float]] = []
    for _ in range(MOST_ROUNDS):
        found += rig.ttft(pairs)
        later, low, high = interval([through - direct for direct, through in found])
        share, least, most = interval([through / direct for direct, through in found])
        doubtful = low <= LATER_MS < high or least <= LATER_SHARE < most
        if not doubtful:
            break
    direct, through = (statistics.median(pair[side] for pair in found) for side in (0, 1))
    print(
        f"First word, without other requests, {len(found)} pairs: {direct:.1f} ms direct, {through:.1f} ms through the "
        f"gateway. Medians of the pairs, with their 95 % intervals: {later:+.2f} ms ({low:+.2f} to {high:+.2f}), "
        f"{share:.3f}x ({least:.3f} to {most:.3f}). At most {LATER_MS:+.0f} ms and {LATER_SHARE}x. "
        f"Load {os.getloadavg()[0]:.0f}.\n",
        flush=True,
    )
    if later > LATER_MS or share > LATER_SHARE:
        return [f"the first word comes {later:+.2f} ms or {share:.3f}x later through the gateway"]
    return []


def measure(rig: Rig, skip: list[str]) -> list[str]:
    """Every change in turn; what it cost that it must not."""
    print("| change | failed | truncated | requests | longest s | s | load |\n|---|---|---|---|---|---|---|")
    planned = {
        "release": ("another release, `apply --rolling 1`", rig.new_release),
        "rollback": ("`rigup rollback`", rig.back),
        "version": (f"llama.cpp {EARLIER} to {LATER}, `apply --rolling 1`", rig.new_version),
        "driver": ("another driver, `apply --rolling 1`, every host reboots", rig.new_driver),
    }
    unplanned = {
        "power": ("a host loses power", rig.lose_power),
        "gateway": ("the only gateway is killed", rig.kill_gateway),
    }
    others = {
        "nginx": ("another release behind nginx, told by reloads", rig.release_behind_nginx),
        "plain": ("plain `systemctl restart`, host by host", rig.restart_plainly),
    }
    faults = []
    for key, (what, change) in {**planned, **unplanned, **others}.items():
        if key in skip:
            continue
        try:
            if key == "nginx":
                rig.start_nginx()
            found = rig.under_load(change, NGINX_PORT if key == "nginx" else PORT)
        except (NotDone, AssertionError, subprocess.CalledProcessError) as error:
            print(f"| {what} | not done |\n\n{error}\n", flush=True)
            faults.append(f"{what}: not done")
            continue
        seen = found["seen"]
        false, requests = seen.get("false end", 0), sum(seen.values())
        truncated = seen.get("truncated", 0) + false
        failed = requests - seen.get("ok", 0) - truncated
        row = f"| {what} | {failed} | {truncated} | {requests} | {found['longest_s']} | {found['seconds']:.0f} |"
        row += f" {os.getloadavg()[0]:.0f} |"
        print(row, {kind: count for kind, count in seen.items() if kind != "ok"} or "", flush=True)
        if key in planned and failed + truncated:
            faults.append(f"{what}: {failed} failed, {truncated} truncated")
        if key == "power":
            late = sum(began > rig.lost_power_at + 1 for began in found["truncated_began"])
            if failed or late:
                faults.append(f"{what}: {failed} failed, {late} truncated that had not begun")
        if key in unplanned and false:
            faults.append(f"{what}: {false} answers were not whole and ended as if they were")
    print(
        "\nTruncated answers had begun; but for those that count as a false end, each ended with an error and without "
        "[DONE]. A host without power takes those with it that it is writing, a killed gateway all.",
        flush=True,
    )
    return faults


def main() -> int:
    """Brings the machines up, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--hosts", type=int, default=3, help="behind the gateway")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds of a client between its requests")
    parser.add_argument("--pairs", type=int, default=200, help="of streams, for the first word; 0 for none")
    parser.add_argument(
        "--skip", default="", help="of release, rollback, version, driver (and the GPUs), power, gateway, nginx, plain"
    )
    parser.add_argument("--stand-in", action="store_true", help="a stand-in for llama.cpp, which says the same words")
    few = "--clients 4 --hosts 2 --pause 0.1 --pairs 2 --skip driver,power,nginx --stand-in"
    arguments = smallest.arguments(parser, few)
    skip = arguments.skip.split(",")
    began = time.monotonic()
    stand_in = engine_archive() if arguments.stand_in else None
    archives = {version: source_archive(version, stand_in) for version in (EARLIER, LATER)}
    INSTANCES.write_text(str(max(1024, int(INSTANCES.read_text()))))
    name = f"rolling{os.getpid()}"
    rig_of_hosts, kind = (None, Fleet) if "driver" in skip else (RIG, GpuFleet)
    options = {"hosts": arguments.hosts + 1, "rig": rig_of_hosts, "packages": USED}
    with tempfile.TemporaryDirectory() as folder, made_lab(name, **options) as lab:
        root, cache = Path(folder, "fleet"), Path(folder, "cache")
        (cache / "rigup/sources").mkdir(parents=True)
        for archive in archives.values():
            (cache / "rigup/sources" / hashlib.sha256(archive).hexdigest()).write_bytes(archive)
        root.mkdir()
        describe_earlier(root)
        write_lock(root, archives)
        fleet = kind(lab, StandInHub.start(demo_model.provide(), lab=name), root, cache)
        try:
            rig = Rig(fleet, arguments.clients, arguments.pause)
            rig.describe()
            rig.rigup("apply", "--reboot")
            rig.gateway.machine.ssh("cat > /run/client.py", input=CLIENT.read_text(), check=True)
            print(
                f"{arguments.clients} clients, {arguments.hosts} hosts, ready after {time.monotonic() - began:.0f} s\n"
            )
            late = first_words(rig, arguments.pairs) if arguments.pairs else []
            faults = ([] if arguments.smallest else late) + measure(rig, skip)
        finally:
            fleet.end_runs()
    print(f"\n{time.monotonic() - began:.0f} s in all. " + ("; ".join(faults) or "All as it must be."))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
