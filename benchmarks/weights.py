"""Weights on many hosts: shared against every host for itself; and one host against curl and hf. As root, as a script.

    python benchmarks/weights.py [--hosts 8] [--files 8] [--mb 125] [--hub-mb 20] [--lan-mb 200] [--skip alone]
    python benchmarks/weights.py --single [--rounds 5] [--mb 125] [--hub-mb 20]

The first brings up lab machines, fits them out, shapes their network and the hub's, and then takes the weights away
and applies again: one host by itself, all of them sharing, all of them from the hub. The second, on loopback,
holds the program that fetches against `curl --parallel` and `hf download`, by time and by CPU, a hash included.
Both print Markdown. Sixteen lab machines and more want: sysctl fs.inotify.max_user_instances=1024 (set here).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import smallest  # noqa: E402
from rigup.lab.hub.content import commit_id  # noqa: E402
from rigup.lab.hub.server_process import StandInHub  # noqa: E402
from rigup.lab.network import network  # noqa: E402
from rigup.lab.network.addresses import machine_namespace, namespace  # noqa: E402
from rigup.lab.process import run  # noqa: E402
from rigup.units import bytes_text  # noqa: E402
from tests.lab.fleet import FILES, MODEL_FILE, REPO, WEIGHTS, Fleet  # noqa: E402
from tests.lab.fleet_fixtures import made_site  # noqa: E402

SECONDS = 3600
PROGRAMS = ROOT / "src/rigup/programs"
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--mb", type=int, default=125, help="the size of each file")
    parser.add_argument("--hub-mb", type=int, default=20, help="MB/s that the hub has for all together, 0: no limit")
    parser.add_argument("--lan-mb", type=int, default=200, help="MB/s of each host's cable, each way")
    parser.add_argument("--skip", default="", help="scenarios to leave out: one, shared, alone")
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    args = smallest.arguments(parser, "--hosts 2 --files 2 --mb 1 --rounds 1")
    if args.single:
        return single(args)
    INSTANCES.write_text(str(max(1024, int(INSTANCES.read_text()))))
    with (
        tempfile.TemporaryDirectory() as folder,
        made_site(Path(folder), f"weights{os.getpid()}", hosts=args.hosts, disk="8g") as site,
    ):
        return measure(Fleet(*site), Path(folder) / "served", args)


def measure(fleet: Fleet, served: Path, args: argparse.Namespace) -> int:
    """The three scenarios on a fleet of bare machines."""
    total = publish(fleet, served, args)
    describe(fleet, args.hosts, share=True)
    began = time.perf_counter()
    if (first := fleet.start("apply", "--yes")).wait(SECONDS):
        raise SystemExit(first.text)
    print(f"first apply: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    shape(fleet, args)
    scenarios = {
        "one": ("one host by itself", 1, False),
        "shared": (f"{args.hosts} hosts, shared", args.hosts, True),
        "alone": (f"{args.hosts} hosts, each from the hub", args.hosts, False),
    }
    shaped = f"hub {args.hub_mb} MB/s, LAN {args.lan_mb} MB/s each, {args.files} files, {bytes_text(total)} in all"
    print(f"{shaped}; load {os.getloadavg()[0]:.1f} before\n")
    print("| | whole apply s | x one host | from the hub | x checkpoint | load after |\n|---|---|---|---|---|---|")
    alone_s = 0.0
    for key, (what, hosts, share) in scenarios.items():
        if key in args.skip.split(","):
            continue
        seconds, count = scenario(fleet, hosts, share)
        alone_s = alone_s or seconds
        print(
            f"| {what} | {seconds:.1f} | {seconds / alone_s:.2f} | {bytes_text(count)} | {count / total:.3f} "
            f"| {os.getloadavg()[0]:.1f} |",
            flush=True,
        )
    return 0


def scenario(fleet: Fleet, hosts: int, share: bool) -> tuple[float, int]:
    """Takes the weights away and applies; the seconds that took, and the bytes that the hub sent."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda host: host.tell(f"rm -rf {WEIGHTS}/*"), fleet.hosts[:hosts]))
    describe(fleet, hosts, share)
    before = len(fleet.hub.log())
    began = time.perf_counter()
    run = fleet.start("apply", "--yes")
    if run.wait(SECONDS):
        raise SystemExit(run.text)
    seconds = time.perf_counter() - began
    print(
        "\n".join(line for line in run.text.splitlines() if "from other hosts" in line or "shared" in line),
        file=sys.stderr,
        flush=True,
    )
    sent = [entry for entry in fleet.hub.log()[before:] if entry["method"] == "GET" and entry["status"] < 300]
    return seconds, sum(entry["bytes"] for entry in sent)


def describe(fleet: Fleet, hosts: int, share: bool) -> None:
    """The fleet's files."""
    fleet.describe(hosts)
    sharing = {"from_mb": 0} if share else False
    data = fleet.root / "group_data/boxes.py"
    data.write_text(f"{data.read_text()}weights_sharing = {sharing}\n")


def publish(fleet: Fleet, served: Path, args: argparse.Namespace) -> int:
    """Puts a checkpoint of that many files at the hub and into the lock; returns its bytes."""
    for name in FILES:
        (served / REPO / name).unlink()
    names = (MODEL_FILE, *(f"part{number}.bin" for number in range(2, args.files + 1)))
    size = int(args.mb) * 1_000_000
    sha256 = {name: random_file(served / REPO / name, size) for name in names}
    lock = fleet.root / "rigup.lock"
    head, _, rest = lock.read_text().partition("[[checkpoints.files]]")
    old = head.split('revision = "')[1].split('"')[0]
    listed = "".join(
        f'[[checkpoints.files]]\npath = "{name}"\nsize = {size}\nsha256 = "{digest}"\n'
        for name, digest in sha256.items()
    )
    lock.write_text(head.replace(old, commit_id(sha256)) + listed + "[[sources]]" + rest.partition("[[sources]]")[2])
    return size * len(names)


def random_file(path: Path, size: int) -> str:
    """Writes a file that no compression helps with; returns its sha256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(size // 10**6):
            block = os.urandom(10**6)
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def shape(fleet: Fleet, args: argparse.Namespace) -> None:
    """Limits what leaves the hub's addresses, all together, and what goes through each host's cable, each way.

    A boot gives a host's cable its own rate back, so this comes after the last one.
    """
    number = fleet.hosts[0].machine.record.number
    limit(namespace(number), network.BRIDGE, args.hub_mb)
    for host in fleet.hosts:
        limit(namespace(number), f"port{host.machine.index}", args.lan_mb)
        limit(machine_namespace(number, host.machine.index), network.LINE, args.lan_mb)


def limit(place: str, device: str, megabytes: int) -> None:
    """A token bucket that is larger than the packets that a virtual card makes, so that none is cut up."""
    if not megabytes:
        return
    bucket = ["tbf", "rate", f"{megabytes * 8}mbit", "burst", "512kb", "latency", "100ms"]
    run(["tc", "-n", place, "qdisc", "replace", "dev", device, "root", *bucket])


def single(args: argparse.Namespace) -> int:
    """One download on loopback, by each contender in turn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository = folder / "root/org/model"
        repository.mkdir(parents=True)
        size = args.mb * 1_000_000
        sha256 = {
            f"part{number}.bin": random_file(repository / f"part{number}.bin", size) for number in range(args.files)
        }
        hub = StandInHub.start(folder / "root", folder / "state")
        if args.hub_mb:
            hub.faults(bytes_per_second=args.hub_mb * 1_000_000 // 4)
        try:
            contend(hub, folder, sha256, size, args)
        finally:
            hub.stop()
    return 0


def contend(hub: StandInHub, folder: Path, sha256: dict[str, str], size: int, args: argparse.Namespace) -> None:
    """Prints a row a contender: wall and CPU seconds, of the download and of a hash of all of it."""
    revision, target = commit_id(sha256), folder / "target"
    files = [{"path": path, "size": size, "sha256": digest} for path, digest in sha256.items()]
    job = {"hub": hub.url, "repo": "org/model", "revision": revision, "folder": str(target / revision), "files": files}
    (folder / "job.json").write_text(json.dumps(job))
    (folder / "programs").mkdir()
    for path in PROGRAMS.rglob("*.py"):  # a host has them in one folder
        shutil.copy(path, folder / "programs")
    program = folder / "programs/fetch_weights.py"
    pairs = [
        word for path in sha256 for word in ("-o", str(target / path), f"{hub.url}/org/model/resolve/{revision}/{path}")
    ]
    words: dict[str, list[str]] = {
        "curl --parallel": ["curl", "-sSfL", "--parallel", "--parallel-immediate", "--parallel-max", "4", *pairs],
        "rigup": [sys.executable, "-S", str(program), str(folder / "job.json")],
        "hf download": [str(hf()), "download", "org/model", "--local-dir", str(target / "hf"), "--max-workers", "4"],
    }
    surroundings = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(folder / "home")}
    found: dict[str, list[tuple[float, float]]] = {key: [] for key in words}
    hashed = []
    for _ in range(args.rounds):
        for key, command in words.items():
            run(["rm", "-rf", target, folder / "home"])
            target.mkdir()
            found[key].append(timed(command, surroundings))
            if key.startswith("curl"):
                hashed.append(timed([sys.executable, "-S", "-c", HASH, *map(str, target.iterdir())], surroundings))
    total = size * len(sha256)
    least = {key: min(wall for wall, _ in rounds) for key, rounds in found.items()}
    cpu = {key: statistics.median(cpu for _, cpu in rounds) for key, rounds in found.items()}
    hash_cpu = statistics.median(cpu for _, cpu in hashed)
    print(f"{args.files} files, {bytes_text(total)}, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}\n")
    print("| | wall s: min | median | speed / curl's | CPU s: median |\n|---|---|---|---|---|")
    for key, rounds in found.items():
        middle = statistics.median(wall for wall, _ in rounds)
        ratio = least["curl --parallel"] / least[key]
        print(f"| {key} | {least[key]:.2f} | {middle:.2f} | {ratio:.2f} | {cpu[key]:.2f} |")
    print(f"| curl, then one hash of all | | | | {cpu['curl --parallel'] + hash_cpu:.2f} |")


HASH = """
import hashlib, sys
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        hashlib.file_digest(file, "sha256")
"""


def timed(command: list[str], surroundings: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU seconds of a command, its children included, which must end well."""
    before, began = os.times(), time.perf_counter()
    done: subprocess.CompletedProcess[Any] = subprocess.run(command, env=surroundings, capture_output=True)
    wall, after = time.perf_counter() - began, os.times()
    if done.returncode:
        raise SystemExit(f"{command[0]}: {done.stderr.decode()[-500:]}")
    return wall, after[2] + after[3] - before[2] - before[3]


def hf() -> Path:
    """The hub's own client, as the development environment has it."""
    return Path(sys.executable).parent / "hf"


if __name__ == "__main__":
    sys.exit(main())
