"""How long it takes to find nothing to do, against a bare SSH command and against others. Run it as root, as a script.

    python benchmarks/noop.py [--hosts 1] [--rounds 5] [--rtt 50] [--only ssh,rigup] [--fleet 200] [--first]

Brings up lab machines with simulated GPUs, applies the whole role set to them, and then runs all contenders in turn,
round after round, so that a busy machine slows them all. Minimum, median and ratios to the bare SSH command of the
same run are printed as a Markdown table. --rtt: a line with this round-trip time, in milliseconds, by a proxy.
--fleet: what the controlling machine pays for many hosts; they are the lab's machines under many names, and only read.
--first: the first apply instead, of machines that have their packages and their driver.
pyinfra is timed twice: as it is, where it compares, shows what would change and waits for Enter, and with -y.

Python's modules are compiled once before anything counts, as they are where rigup was installed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import delaying_proxy, noop_fleet, smallest  # noqa: E402
from rigup.cache import cache_folder  # noqa: E402
from tests.lab.fleet_fixtures import made_site  # noqa: E402
from tests.lab.gpu_fleet import GpuFleet  # noqa: E402

ANSIBLE = "2.19.14"
FIRST_SECONDS = 900
SETTLE_SECONDS = 0.5
Host = tuple[str, dict[str, Any]]


@dataclass
class Contender:
    """`start` begins what is timed, as one process or several side by side."""

    name: str
    start: Callable[[], list[subprocess.Popen[bytes]]]
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def run(self) -> None:
        """One timed run, which must end well. It begins when the host is done with taking down the session before."""
        time.sleep(SETTLE_SECONDS)
        before = time.perf_counter()
        processes = self.start()
        cpu = 0.0
        for process in processes:
            _, status, usage = os.wait4(process.pid, 0)
            cpu += usage.ru_utime + usage.ru_stime
            if status:
                raise SystemExit(f"{self.name}: exit status {status >> 8}")
        self.wall.append(time.perf_counter() - before)
        self.cpu.append(cpu)


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rtt", type=float, default=0.0)
    parser.add_argument("--only", default="ssh,rigup,pyinfra,ansible")
    parser.add_argument("--fleet", type=int, default=0)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--no-gpus", action="store_true", help="and so without a driver, which takes minutes")
    args = smallest.arguments(parser, "--hosts 1 --rounds 1 --only ssh,rigup,pyinfra --no-gpus")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(cache_folder() / "benchmarks/compiled")
    rig = None if args.no_gpus else noop_fleet.RIG
    with (
        tempfile.TemporaryDirectory() as folder,
        made_site(Path(folder), f"noop{os.getpid()}", hosts=args.hosts, rig=rig) as site,
    ):
        return (first if args.first else measure)(GpuFleet(*site), args)


def first(fleet: GpuFleet, args: argparse.Namespace) -> int:
    """The first apply of machines that have Debian's and NVIDIA's packages, and nothing of rigup's."""
    hosts = [host.machine.inventory for host in fleet.hosts]
    noop_fleet.describe(fleet, hosts, not args.no_gpus)
    fleet.rigup("apply", "--yes", "--reboot", seconds=FIRST_SECONDS)
    chosen = contenders(fleet, hosts, ["ssh", "rigup", "pyinfra"])
    for _ in range(args.rounds):
        for contender in chosen:
            for host in fleet.hosts:
                host.wipe()
                host.tell("rm -rf /var/cache/rigup")
            fleet.forget_builds()
            contender.run()
    print(table(chosen, args, "first apply"))
    return 0


def measure(fleet: GpuFleet, args: argparse.Namespace) -> int:
    """Everything, on a fleet of bare machines."""
    hosts = [host.machine.inventory for host in fleet.hosts]
    noop_fleet.describe(fleet, hosts, not args.no_gpus)
    began = time.perf_counter()
    for _ in range(3):  # the first makes everything; the others ask what only a finished host is asked
        fleet.rigup("apply", "--yes", "--reboot", seconds=FIRST_SECONDS)
    print(f"first apply and two more: {time.perf_counter() - began:.1f} s", file=sys.stderr)
    if args.fleet:
        return many(fleet, hosts, args)
    if args.rtt:
        hosts = [distant(fleet, index, args.rtt / 2000) for index in range(len(hosts))]
        noop_fleet.describe(fleet, hosts, not args.no_gpus)
    chosen = contenders(fleet, hosts, args.only.split(","))
    for contender in chosen:  # caches are filled and connections known before anything counts
        contender.run()
        contender.wall.clear()
        contender.cpu.clear()
    for number in range(args.rounds):  # there and back, so that nobody always comes after the same one
        for contender in chosen if number % 2 else reversed(chosen):
            contender.run()
    print(table(chosen, args))
    return 0


def contenders(fleet: GpuFleet, hosts: list[Host], wanted: list[str]) -> list[Contender]:
    """Those that were asked for, the bare SSH command first."""

    enter = fleet.root / "enter"
    enter.write_text("\n")

    def quietly(*words: str | Path, **environment: str) -> subprocess.Popen[bytes]:
        surroundings = {**os.environ, "XDG_CACHE_HOME": str(fleet.cache), **environment}
        with enter.open() as keyboard:
            return subprocess.Popen(
                [str(word) for word in words],
                cwd=fleet.root,
                env=surroundings,
                stdin=keyboard,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    found = [
        Contender("ssh", lambda: [quietly(*noop_fleet.ssh_words(host), "python3", "-c", "pass") for host in hosts]),
        Contender("rigup", lambda: [quietly(sys.executable, "-m", "rigup", "apply", "--yes")]),
    ]
    if "pyinfra" in wanted:
        for name in ("deploy", "roles"):
            (fleet.root / name).symlink_to(ROOT / name)
        words = (sys.executable, "-m", "pyinfra", "inventories/rehearsal.py", "deploy/site.py")
        found.append(Contender("pyinfra -y", lambda: [quietly(*words, "-y")]))
        found.append(Contender("pyinfra", lambda: [quietly(*words)]))  # it shows the changes, and asks for Enter
    if "ansible" in wanted:
        program = noop_fleet.ansible(cache_folder() / "benchmarks", ANSIBLE)
        folder = fleet.root / "ansible"
        folder.mkdir()
        book = noop_fleet.playbook(folder, fleet, hosts)
        settings = {"ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_HOME": str(folder)}
        found.append(Contender("ansible", lambda: [quietly(program, "-i", folder / "hosts.ini", book, **settings)]))
    return [contender for contender in found if contender.name.split()[0] in wanted]


def distant(fleet: GpuFleet, index: int, one_way_s: float) -> Host:
    """A host of the fleet at the end of a long line."""
    machine = fleet.hosts[index].machine
    data = machine.inventory[1]
    _, port = delaying_proxy.start((str(data["ssh_hostname"]), int(data.get("ssh_port", 22))), one_way_s)
    return noop_fleet.through(machine, machine.name, port, fleet.root)


def table(contenders: list[Contender], args: argparse.Namespace, what: str = "") -> str:
    """Markdown: a row a contender."""
    bare = contenders[0]
    line = f", {args.rtt:.0f} ms round trip" if args.rtt else ""
    hosts = f"{args.hosts} host{'s' if args.hosts > 1 else ''}{line}"
    rows = [
        f"{what or 'nothing to do'}, {hosts}, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}",
        "",
        "| | wall s: min | median | x ssh (min) | x ssh (median) | controller CPU s |",
        "|---|---|---|---|---|---|",
    ]
    for one in contenders:
        rows.append(
            f"| {one.name} | {min(one.wall):.2f} | {statistics.median(one.wall):.2f} "
            f"| {min(one.wall) / min(bare.wall):.1f} "
            f"| {statistics.median(one.wall) / statistics.median(bare.wall):.1f} "
            f"| {statistics.median(one.cpu):.2f} |"
        )
    return "\n".join(rows)


def many(fleet: GpuFleet, hosts: list[Host], args: argparse.Namespace) -> int:
    """What diff and status cost the controlling machine, by the number of hosts."""
    print("| | hosts | wall s | controller CPU s | MiB |\n|---|---|---|---|---|")
    for verb in ("diff", "status"):
        for count in (1, 10, 50, 100, 200):
            if count > args.fleet:
                break
            # Machines are there under their own names, too: one of them is the builder.
            others = [(f"n{number}", hosts[number % len(hosts)][1]) for number in range(len(hosts), count)]
            named = [*hosts, *others][:count]
            noop_fleet.describe(fleet, named, not args.no_gpus)
            words = [sys.executable, "-c", noop_fleet.SPENT, sys.executable, "-m", "rigup", verb, "--json"]
            done = subprocess.run(words, cwd=fleet.root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                raise SystemExit(f"{verb} of {count} hosts: exit status {done.returncode}\n{done.stderr}")
            wall, cpu, mib = map(float, done.stderr.split()[-3:])
            print(f"| {verb} | {count} | {wall:.2f} | {cpu:.2f} | {mib:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
