"""How long planning takes: the example systems, 1,000 hosts in 100 groups, every model on one rig. Run it as a script.

Import time is printed apart: it is paid once, whatever is planned. Planning is one thread that waits for nothing, so
that processor time is what it takes on an idle machine; the limits hold for that, and the clock is printed beside it.
Exits 1 if a limit is passed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import smallest  # noqa: E402

EXAMPLES_LIMIT_S, FLEET_LIMIT_S = 0.5, 2.0
MODEL_LIMIT_S = 0.027  # 1 s for 37 models
RIGS = ("2x RTX 3090", "8x RTX 3090", "8x H200")
HOSTS, GROUPS = 1000, 100
CARDS = ("RTX 3090", "RTX 5090", "RTX PRO 6000 Max-Q", "H200", "B200")
SERVICES = (
    '{"model": "MiniMax-M2.5"}',
    '{"model": "MiniMax-M2.1", "context": 65536}',
    '{"checkpoint": "MiniMaxAI/MiniMax-M2.5", "engine": "vllm"}',
    '{"checkpoint": "lukealonso/MiniMax-M2.5-NVFP4", "concurrency": 16}',
)


def main() -> int:
    """Measures all and prints one line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", type=int, default=HOSTS, help=f"in {GROUPS} groups (default: {HOSTS})")
    args = smallest.arguments(parser, f"--hosts {GROUPS}")
    clock, processor = time.perf_counter(), time.process_time()
    from rigup.project.inventory import load_project
    from rigup.project.planning import plan_project

    print(f"{'import':28} {elapsed(clock, processor)}")
    late = False
    with TemporaryDirectory() as folder:
        for name, inventory, limit in (
            ("example systems", ROOT / "inventories" / "seeds.py", EXAMPLES_LIMIT_S),
            (f"{args.hosts:,} hosts in {GROUPS} groups", write_fleet(Path(folder), args.hosts), FLEET_LIMIT_S),
        ):
            clock, processor = time.perf_counter(), time.process_time()
            plans = plan_project(load_project(str(inventory)))
            late = late or time.process_time() - processor > limit
            refused = sum(plan.verdict == "refused" for plan in plans)
            print(f"{name:28} {elapsed(clock, processor)}, limit {limit} s: {len(plans)} plans, {refused} no")
    return int((models_are_late() or late) and not args.smallest)


def models_are_late() -> bool:
    """Plans every model of the catalogue on each rig; returns whether one took too long."""
    from rigup.catalogue.catalogue import load_catalogue
    from rigup.lock import Lock
    from rigup.planner.inputs.rig_and_services import read_rig
    from rigup.project.fit_table import fits_of

    late, catalogue = False, load_catalogue()
    for gpus in RIGS:
        rig = read_rig({"gpus": gpus, "host_memory_gib": 256}, "rig", catalogue)
        clock, processor = time.perf_counter(), time.process_time()
        found = fits_of(rig, catalogue, Lock())
        late = late or time.process_time() - processor > MODEL_LIMIT_S * len(found)
        fitting = sum(fit.decision is not None for fit in found)
        name = f"{len(found)} models on {gpus}"
        print(f"{name:28} {elapsed(clock, processor)}, limit {MODEL_LIMIT_S * len(found):.1f} s: {fitting} fit")
    return late


def elapsed(clock: float, processor: float) -> str:
    """Time since both readings: of the processor, and by the clock."""
    return f"{time.process_time() - processor:6.3f} s ({time.perf_counter() - clock:.3f} s by the clock)"


def write_fleet(folder: Path, hosts: int) -> Path:
    """A fleet on disk in which no two groups are alike."""
    (folder / "inventories").mkdir()
    (folder / "group_data").mkdir()
    each = hosts // GROUPS
    lines = []
    for number in range(GROUPS):
        names = [f"host{number * each + n}.example" for n in range(each)]
        lines.append(f"group{number} = {names!r}")
        rig = {"gpus": f"{1 << number % 4}x {CARDS[number % len(CARDS)]}", "host_memory_gib": 64 + number}
        service = SERVICES[number % len(SERVICES)]
        text = f'rig = {rig!r}\nservices = {{"chat": {service}}}\n'
        (folder / "group_data" / f"group{number}.py").write_text(text)
    inventory = folder / "inventories" / "fleet.py"
    inventory.write_text("\n".join(lines) + "\n")
    return inventory


if __name__ == "__main__":
    sys.exit(main())
