"""Stands for vLLM's benchmarks/kernels/benchmark_moe.py: the same options, output and use of Ray, and made-up times.

How it behaves is read from /run/rigup-test/tuner or $RIGUP_TEST_TUNER, JSON: {"gain": 1.2, "noise": 0.01,
"fail": "words", "hold": path}. A tuned table makes it `gain` times as fast; `noise` moves each run by up to that part.
It cannot show what a kernel is worth, nor whether the real tool runs in a build.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import ray
from ray.experimental.tqdm_ray import tqdm

SPACE = [
    {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
    for m in (16, 64)
    for n in (64, 128)
]
GRID = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096]


def behaviour() -> Any:
    for path in (os.environ.get("RIGUP_TEST_TUNER", ""), "/run/rigup-test/tuner"):
        if path and Path(path).exists():
            return json.loads(Path(path).read_text())
    return {}


def name_of(args: argparse.Namespace) -> str:
    config = json.loads((Path(args.model) / "config.json").read_text())
    experts, width = config["num_local_experts"], config["intermediate_size"]
    if args.enable_expert_parallel:
        experts //= args.tp_size
    else:
        width //= args.tp_size
    device = config["stand_in_device"]
    return f"E={experts},N={width},device_name={device},dtype={args.dtype},block_shape=[128,128].json"


class Worker:
    def __init__(self, seed: int) -> None:
        self.device = int(ray.get_gpu_ids()[0])

    def tune(self, tokens: int, space: list[dict[str, int]]) -> dict[str, int] | None:
        best = None
        for launch in tqdm(space):
            while behaviour().get("hold") and Path(behaviour()["hold"]).exists():
                time.sleep(0.05)
            best = launch if launch["BLOCK_SIZE_M"] <= max(16, tokens) else best
        return best

    def benchmark(self, tokens: int, name: str) -> tuple[dict[str, int], float]:
        folder = os.environ.get("VLLM_TUNED_CONFIG_FOLDER", "")
        tuned = bool(folder) and (Path(folder) / name).exists()
        says = behaviour()
        noise = 1 + random.uniform(-1, 1) * says.get("noise", 0.001)
        return SPACE[0], 10.0 * (1 + tokens / 100) * noise / (says.get("gain", 1.2) if tuned else 1)


def main(args: argparse.Namespace) -> None:
    if words := behaviour().get("fail"):
        print("a line before", file=sys.stderr)
        sys.exit(words)
    tokens = args.batch_size or GRID
    ray.init()
    on_gpus = ray.remote(num_gpus=1)(Worker)
    workers = [on_gpus.remote(args.seed) for _ in range(int(ray.available_resources()["GPU"]))]
    calls = [workers[n % len(workers)] for n in range(len(tokens))]
    if args.tune:
        rows = ray.get([worker.tune.remote(count, SPACE) for worker, count in zip(calls, tokens, strict=True)])
        Path(args.save_dir).mkdir(exist_ok=True)
        table = {"triton_version": "3.6.0", **{str(count): row for count, row in zip(tokens, rows, strict=True)}}
        (Path(args.save_dir) / name_of(args)).write_text(json.dumps(table))
        return
    name = name_of(args)
    found = ray.get([worker.benchmark.remote(count, name) for worker, count in zip(calls, tokens, strict=True)])
    for count, (config, microseconds) in zip(tokens, found, strict=True):
        print(f"Batch size: {count}, config: {config}")
        print(f"Kernel time: {microseconds:.2f} us")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--tp-size", type=int)
    parser.add_argument("--enable-expert-parallel", action="store_true")
    parser.add_argument("--dtype")
    parser.add_argument("--save-dir", default="./")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, nargs="+")
    parser.add_argument("--tune", action="store_true")
    main(parser.parse_args())
