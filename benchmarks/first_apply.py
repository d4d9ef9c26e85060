"""A first apply on bare machines: its chains, against the same steps in turn and other executors. As root, as a script.

    python benchmarks/first_apply.py [--engine stand-in] [--hosts 1] [--weights-s 120] [--only beside,turn]

Each contender gets lab machines of its own. --engine says what they become:

    stand-in    four simulated GPUs: Debian packages, NVIDIA's driver with DKMS, a reboot, a stand-in engine
    llama.cpp   no GPUs: the pinned llama.cpp is compiled, once for all hosts, and serves a small real model
    vllm        no GPUs: the environment of the tests in tests/slow, which serves a tiny MiniMax M2

The hub sends so slowly that the weights take --weights-s seconds; several hosts download each for itself, so that each
has the same chain. Contenders: beside (as rigup does it), turn (all steps one after another), and, for llama.cpp,
pyinfra (the same roles by its own executor) and ansible (an equivalent playbook). Prints Markdown.

    python benchmarks/first_apply.py --all

runs everything that docs/performance.md reports, each with a table of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import first_apply_others as others  # noqa: E402
from benchmarks import noop_fleet, smallest  # noqa: E402
from benchmarks.weights import INSTANCES  # noqa: E402
from rigup.cache import cache_folder  # noqa: E402
from rigup.errors import RigupError  # noqa: E402
from rigup.lab import demo_model  # noqa: E402
from rigup.lab.hub.server_process import StandInHub  # noqa: E402
from rigup.run.chains.timing import LAST, StepTime, line  # noqa: E402
from rigup.units import seconds_text  # noqa: E402
from tests import tiny_minimax_m2 as tiny  # noqa: E402
from tests.lab.fleet import FILE_BYTES, Fleet  # noqa: E402
from tests.lab.fleet_fixtures import made_lab, made_site  # noqa: E402
from tests.lab.gpu_fleet import RIG, GpuFleet  # noqa: E402
from tests.slow.vllm_fleet import made_vllm_fleet  # noqa: E402

SECONDS = 3600
IN_TURN = (
    "import dataclasses, rigup.run.chains.order as order\n"
    "order._BY_ROLE = {role: dataclasses.replace(step, beside=False) for role, step in order._BY_ROLE.items()}"
)
SERIES = (
    "--weights-s 240",
    "--engine llama.cpp --quick-build --weights-s 120 --only beside,turn,pyinfra,ansible",
    "--engine llama.cpp --weights-s 240 --only beside",
    "--engine vllm --weights-s 60 --only beside,turn",
    "--hosts 8 --weights-s 240 --only beside",
    "--engine llama.cpp --quick-build --hosts 8 --weights-s 120 --only beside",
)
"""What --all runs."""
CONTENDERS = {
    "beside": "side by side",
    "turn": "in turn",
    "pyinfra": "pyinfra's executor, same roles",
    "ansible": "Ansible, an equivalent playbook",
}


def main() -> int:
    """Measures and prints; 1 if one of the applies failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=FLEETS, default="stand-in")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--weights-s", type=float, default=120, help="seconds that the hub takes for the weights")
    parser.add_argument("--quick-build", action="store_true", help="for llama.cpp")
    parser.add_argument("--only", default="beside,turn", help=f"of {', '.join(CONTENDERS)}")
    parser.add_argument("--all", action="store_true", help="what docs/performance.md reports, one after another")
    parser.add_argument("--no-gpus", action="store_true", help="for the stand-in: no driver, which takes minutes")
    # beside is the same without IN_TURN
    args = smallest.arguments(parser, "--hosts 1 --weights-s 1 --only turn --no-gpus")
    INSTANCES.write_text(str(max(1024, int(INSTANCES.read_text()))))
    series = [(words, parser.parse_args(words.split())) for words in SERIES] if args.all else [("", args)]
    return max(measure(*each) for each in series)


def measure(words: str, args: argparse.Namespace) -> int:
    """A table of contenders; 1 if one of them failed. words: what the arguments were, for its heading."""
    print(f"\n{words}\n" if words else "", end="")
    print("| | whole apply | longest chain | ratio | load before and after |\n|---|---|---|---|---|", flush=True)
    failed = 0
    for key in args.only.split(","):
        try:
            contend(key, args)
        except (RigupError, SystemExit, subprocess.SubprocessError) as error:
            failed = 1
            print(f"| {CONTENDERS[key]} | failed | | | |", flush=True)
            print(f"{words} {key}: {error}", file=sys.stderr, flush=True)
    return failed


def contend(key: str, args: argparse.Namespace) -> None:
    """One first apply of all hosts, from bare machines."""
    with tempfile.TemporaryDirectory() as folder, FLEETS[args.engine](Path(folder), args) as (fleet, size):
        fleet.hub.faults(bytes_per_second=int(size / args.weights_s))
        words = getattr(others, key)(fleet) if hasattr(others, key) else ()
        load, began = os.getloadavg()[0], time.perf_counter()
        if words:
            others.run(fleet, words, SECONDS)
            times = {}
        else:
            run = fleet.start("apply", "--yes", "--reboot", "--json", before=IN_TURN if key == "turn" else "")
            if run.wait(SECONDS):
                raise SystemExit(run.text)
            times = {host["host"]: [StepTime(**step) for step in host["steps"]] for host in run.json["hosts"]}
        wall = time.perf_counter() - began
        longest = max(map(longest_chain, times.values()), default=0.0)
        figures = (seconds_text(longest), f"{wall / longest:.2f}") if longest else ("", "")
        row = (CONTENDERS[key], seconds_text(wall), *figures, f"{load:.1f}, {os.getloadavg()[0]:.1f}")
        print(f"| {' | '.join(row)} |", flush=True)
        for name, steps in times.items():
            print(f"{name}: {line(steps)}", file=sys.stderr, flush=True)


def longest_chain(times: Sequence[StepTime]) -> float:
    """The longest of the steps that need one another: those in turn, or one beside them; with base and start."""
    ends = sum(time.seconds for time in times if time.step in ("base", LAST))
    in_turn = sum(time.seconds for time in times if time.step not in ("base", LAST, *BESIDE))
    return ends + max(in_turn, *(time.seconds for time in times if time.step in BESIDE))


BESIDE = ("weights", "environment", "image")


@contextmanager
def stand_in(folder: Path, args: argparse.Namespace) -> Iterator[tuple[Fleet, int]]:
    """Machines, by default with simulated GPUs; and the bytes of a file of their weights."""
    with made_site(
        folder, f"first{os.getpid()}", packages=(), hosts=args.hosts, rig=None if args.no_gpus else RIG
    ) as site:
        fleet = GpuFleet(*site)
        noop_fleet.describe(fleet, [host.machine.inventory for host in fleet.hosts], not args.no_gpus)
        with (fleet.root / "group_data/boxes.py").open("a") as file:
            file.write("weights_sharing = False\n")
        yield fleet, FILE_BYTES


@contextmanager
def llama_cpp(folder: Path, args: argparse.Namespace) -> Iterator[tuple[Fleet, int]]:
    """Machines without GPUs, the demo's model and the toolkit's own lock; nothing is built yet."""
    cache = folder / "cache"
    shutil.copytree(cache_folder() / "sources", cache / "rigup/sources")
    with made_lab(f"first{os.getpid()}", hosts=args.hosts) as lab:
        fleet = Fleet(lab, StandInHub.start(demo_model.provide(), lab=lab.record.name), folder, cache)
        fleet.describe(args.hosts, quick_build=args.quick_build)
        names = [host.name for host in fleet.hosts]
        with (folder / "group_data/boxes.py").open("a") as file:
            file.write(f"builder = {names!r}\nweights_sharing = False\n")
        yield fleet, demo_model.MODEL.size


@contextmanager
def vllm(folder: Path, args: argparse.Namespace) -> Iterator[tuple[Fleet, int]]:
    """Machines without GPUs and a wheelhouse with vLLM's wheels."""
    with made_vllm_fleet("first", folder, args.hosts) as fleet:
        fleet.describe(args.hosts)
        fleet.lock()
        with (folder / "group_data/boxes.py").open("a") as file:
            file.write("weights_sharing = False\n")
        yield fleet, max(path.stat().st_size for path in (folder / "served" / tiny.REPO).rglob("*"))


FLEETS = {"stand-in": stand_in, "llama.cpp": llama_cpp, "vllm": vllm}

if __name__ == "__main__":
    sys.exit(main())
