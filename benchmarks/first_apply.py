"""A first apply on bare machines with simulated GPUs: its chains, against the same steps in turn. As root, as a script.

    python benchmarks/first_apply.py [--hosts 1] [--weights-s 120] [--skip turn]

Each scenario brings up its own lab machines: Debian packages, NVIDIA's driver with DKMS, a reboot, a build and a start
are real but for the engine, which is a stand-in; the hub sends so slowly that the weights take --weights-s seconds.
Several hosts download each for itself, so that each has the same chain. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.weights import INSTANCES, Folders  # noqa: E402
from rigup.run.chains.timing import LAST, StepTime, line  # noqa: E402
from rigup.units import seconds_text  # noqa: E402
from tests.lab.fleet import FILE_BYTES  # noqa: E402
from tests.lab.fleet_fixtures import made_site  # noqa: E402
from tests.lab.gpu_fleet import OLD, RIG, GpuFleet  # noqa: E402

SECONDS = 3600
IN_TURN = (
    "import dataclasses, rigup.run.chains.order as order\n"
    "order._BY_ROLE = {role: dataclasses.replace(step, beside=False) for role, step in order._BY_ROLE.items()}"
)
SCENARIOS = {"beside": ("side by side", ""), "turn": ("in turn", IN_TURN)}


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--weights-s", type=float, default=120, help="seconds that the hub takes for the weights")
    parser.add_argument("--skip", default="", help="scenarios to leave out: beside, turn")
    args = parser.parse_args()
    INSTANCES.write_text(str(max(1024, int(INSTANCES.read_text()))))
    print("| | whole apply | longest chain | ratio | load before and after |\n|---|---|---|---|---|", flush=True)
    for key, (what, before) in SCENARIOS.items():
        if key not in args.skip.split(","):
            scenario(what, before, args)
    return 0


def scenario(what: str, before: str, args: argparse.Namespace) -> None:
    """One first apply of all hosts, from bare machines."""
    with tempfile.TemporaryDirectory() as folder:
        folders: Any = Folders(Path(folder))
        with made_site(folders, f"first{os.getpid()}", hosts=args.hosts, rig=RIG) as site:
            fleet = GpuFleet(*site)
            fleet.describe_gpus(OLD, weights_sharing=False)
            entries = [host.machine.inventory for host in fleet.hosts]
            (fleet.root / "inventories/rehearsal.py").write_text(f"boxes = {entries!r}\n")
            fleet.hub.faults(bytes_per_second=int(FILE_BYTES / args.weights_s))
            load, began = os.getloadavg()[0], time.perf_counter()
            run = fleet.start("apply", "--yes", "--reboot", "--json", before=before)
            if run.wait(SECONDS):
                raise SystemExit(run.text)
            wall = time.perf_counter() - began
            times = {host["host"]: [StepTime(**step) for step in host["steps"]] for host in run.json["hosts"]}
            longest = max(map(longest_chain, times.values()))
            print(
                f"| {what} | {seconds_text(wall)} | {seconds_text(longest)} | {wall / longest:.2f} "
                f"| {load:.1f}, {os.getloadavg()[0]:.1f} |",
                flush=True,
            )
            for name, steps in times.items():
                print(f"{name}: {line(steps)}", file=sys.stderr, flush=True)


def longest_chain(times: Sequence[StepTime]) -> float:
    """The longer of the steps that need one another: those with the driver and the build, those with the weights."""
    seconds = {time.step: time.seconds for time in times}
    weights = seconds.pop("weights", 0.0)
    return max(sum(seconds.values()), seconds.get("base", 0.0) + weights + seconds.get(LAST, 0.0))


if __name__ == "__main__":
    sys.exit(main())
