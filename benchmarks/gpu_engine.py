"""Serves models of full size with the real vLLM on a machine with a GPU and no network: `bin/gpu-check --engine`.

FOLDER is gpu-engine/ of the checkout, made by `bin/gpu-check --pack-engine`; its parts may arrive one by one. The
machine needs Python 3.12 with PyTorch for CUDA 13, whose NVIDIA libraries are used, CUDA's compiler and ninja. Weights
are made up, so that answers mean nothing; memory, starts and speed do not depend on them. With --hide vLLM is also
tried as on a host without `nvcc`, `ninja` and CUDA_HOME: CUDA's folders below /usr/local get other names meanwhile.
The result is written after each part to docs/measurements/<time>-vllm.json, with what the log says of kernels, memory
and errors.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path

if __package__:
    from benchmarks.gpu_check import BYTE_TOKENS, ROOT, Missing, compiler, lines, outcome, used_mib
else:
    from gpu_check import (  # type: ignore[import-not-found, no-redef]
        BYTE_TOKENS,
        ROOT,
        Missing,
        compiler,
        lines,
        outcome,
        used_mib,
    )

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WORK = Path(tempfile.gettempdir()) / "rigup-gpu-engine"
LEAST_SECONDS = 45
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SAMPLING = {"temperature": 0.7, "top_p": 0.95, "top_k": 20, "ignore_eos": True}
TELLING = re.compile(r"backend|kernel|GiB|took|ompil|graph|FlashInfer|eep_?gemm|DeepGEMM|Error|error|WARN|concurrency")
# Of the machine's own packages: NVIDIA's libraries, and what the parts leave out.
LINKED = (
    *(
        "nvidia",
        "numpy",
        "numpy.libs",
        "scipy",
        "scipy.libs",
        "cv2",
        "opencv_python_headless.libs",
        "PIL",
        "pillow.libs",
    ),
    *("grpc", "uvloop", "sympy", "networkx", "mpmath", "regex", "yaml", "_yaml", "aiohttp", "multidict", "yarl"),
    *("frozenlist", "propcache", "numba", "llvmlite", "attr", "attrs"),
)
VLLM = "import sys\nfrom vllm.entrypoints.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
# The engine's own questions, and its first kernels that are compiled; asked in a process of its own.
ASKED = """
import json, time, torch
found = {}
def timed(name, asked):
    began = time.monotonic()
    try:
        answer = asked()
        torch.cuda.synchronize()
        found[name] = {"seconds": round(time.monotonic() - began, 1), "answer": answer}
    except BaseException as error:
        text = str(error)
        found[name] = {"seconds": round(time.monotonic() - began, 1), "error": f"{type(error).__name__}: {text[:600]}"}
    print("FOUND " + json.dumps(found), flush=True)
def context():
    torch.zeros(8, device="cuda")
    free, total = torch.cuda.mem_get_info()
    return {"total_mib": total >> 20, "used_mib": (total - free) >> 20}
def flashinfer():
    from vllm.utils.flashinfer import has_flashinfer
    return has_flashinfer()
def deep_gemm():
    import vllm.third_party.deep_gemm as kernels
    one = torch.randn(128, 4096, device="cuda").to(torch.float8_e4m3fn), torch.ones(128, 32, device="cuda")
    other = torch.randn(6144, 4096, device="cuda").to(torch.float8_e4m3fn), torch.ones(48, 32, device="cuda")
    kernels.fp8_gemm_nt(one, other, torch.empty(128, 6144, device="cuda", dtype=torch.bfloat16))
def sampling():
    import flashinfer
    probabilities = torch.softmax(torch.randn(4, 151936, device="cuda"), -1)
    flashinfer.sampling.top_p_sampling_from_probs(probabilities, 0.95)
timed("context", context)
timed("has_flashinfer", flashinfer)
timed("deep_gemm", deep_gemm)
timed("deep_gemm again", deep_gemm)
timed("flashinfer sampling", sampling)
"""
# What is served in which order: name, model, whether the compiler is there, seconds at most.
SERVED = (
    ("MiniMax-M2.5, 14 layers, FP8", "MiniMax-M2.5-14", True, 240),
    ("the same, again", "MiniMax-M2.5-14", True, 120),
    ("MiniMax-M2.5, 14 layers, FP8, no compiler", "MiniMax-M2.5-14", False, 90),
    ("Qwen3-8B, BF16", "Qwen3-8B", True, 120),
    ("Qwen3-30B-A3B, FP8", "Qwen3-30B-A3B-FP8", True, 150),
    ("Qwen3-32B, FP8", "Qwen3-32B-FP8", True, 150),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folder", nargs="?", default=str(ROOT / "gpu-engine"), help="made by bin/gpu-check --pack-engine"
    )
    parser.add_argument("--output", metavar="FILE", help="write the result there")
    parser.add_argument("--hide", action="store_true", help="also try it without CUDA below /usr/local")
    parser.add_argument("--seconds", type=float, default=420, help="for everything; what has no time left is told")
    args = parser.parse_args()
    folder = Path(args.folder)
    if not (folder / "models.tar.xz").exists():
        print(f"gpu-check: {folder}/models.tar.xz does not exist")
        print("hint: bin/gpu-check --pack-engine, where there is a network")
        return 2
    began, deadline = time.time(), time.monotonic() + args.seconds
    named = time.strftime("%Y%m%d-%H%M%S", time.gmtime(began))
    output = Path(args.output or ROOT / f"docs/measurements/{named}-vllm.json")
    result: dict[str, Any] = {"schema": 1, "time": int(began)}

    def part(name: str, does: Any) -> None:
        print(f"{name} ...", flush=True)
        started = time.monotonic()
        result[name] = outcome(does)
        result.setdefault("part_seconds", {})[name] = round(time.monotonic() - started, 1)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=1) + "\n")

    part("environment", lambda: unpack(folder))
    part("asked", lambda: ask_engine(True))
    if args.hide:
        part("asked, no compiler", lambda: ask_engine(False))
    for name, model, compiles, seconds in SERVED:
        if compiles or args.hide:
            part(name, partial(serve, model, compiles, seconds, deadline))
    print(f"{output}: {time.time() - began:.0f} s")
    return 0


def unpack(folder: Path) -> dict[str, Any]:
    """An environment of the packages, with the machine's libraries linked beside them."""
    shutil.rmtree(WORK, ignore_errors=True)
    (WORK / "bin").mkdir(parents=True)
    parts = " ".join(str(path) for path in sorted(folder.glob("engine.tar.xz.?")))
    lines("sh", "-c", f"cat {parts} | xz -T0 -dc | tar -x -C {WORK}; tar -xJf {folder}/models.tar.xz -C {WORK}")
    program = "import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])"
    machine, base = Path(lines(sys.executable, "-c", program)[-1]), Path(sys.executable).resolve()
    site = WORK / "site"
    packages = WORK / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    packages.parent.mkdir(parents=True)
    packages.symlink_to(site)
    (WORK / "bin/python").symlink_to(base)
    (WORK / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    for name in LINKED:
        if (machine / name).exists() and not (site / name).exists():
            (site / name).symlink_to(machine / name)
    (WORK / "bin/vllm").write_text(f"#!{WORK}/bin/python\n{VLLM}")
    (WORK / "bin/vllm").chmod(0o755)
    nvcc, ninja = compiler(), shutil.which("ninja") or str(Path(sys.executable).with_name("ninja"))
    if nvcc is None or not Path(ninja).exists():
        raise Missing("nvcc or ninja is not on this machine")
    (WORK / "tools").mkdir()
    (WORK / "tools/ninja").symlink_to(ninja)
    cuda = Path(nvcc).resolve().parents[1]
    (WORK / "cuda").symlink_to(cuda)
    lacking = missing_functions(site, machine / "nvidia")
    return {"cuda": cuda.name, "python": sys.version.split()[0], "functions_of_newer_libraries": lacking}


def missing_functions(site: Path, libraries: Path) -> list[str]:
    """Functions that torch wants of newer libraries than the machine's; stand-ins of them are loaded first.

    One GPU calls none of them: those of NCCL 2.30 that torch 2.14 knows.
    """
    symbols = f"nm -D --undefined-only {site}/torch/lib/libtorch_cuda.so | awk '/ U /{{print $2}}' | sed 's/@.*//'"
    wanted = {name for name in lines("sh", "-c", symbols) if re.match(r"nccl|cudnn|cublas|cusparse|nvshmem", name)}
    there = f"for f in {libraries}/*/lib/*.so*; do nm -D --defined-only $f 2>/dev/null; done | awk '{{print $3}}'"
    lacking = sorted(wanted - {name.partition("@")[0] for name in lines("sh", "-c", there)})
    (WORK / "newer.c").write_text("".join(f"int {name}(void) {{ return 3; }}\n" for name in lacking))
    lines("gcc", "-shared", "-fPIC", "-w", str(WORK / "newer.c"), "-o", str(WORK / "newer.so"))
    return lacking


def environment(compiles: bool) -> dict[str, str]:
    """As rigup's unit sets it; compiles: with CUDA's compiler and ninja."""
    home = WORK / ("home" if compiles else "home-without")
    home.mkdir(exist_ok=True)
    kept = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "CUDA_HOME", "CUDA_PATH")}
    path = f"{WORK}/bin:{WORK}/tools:{WORK}/cuda/bin:{SYSTEM_PATH}" if compiles else f"{WORK}/bin:{SYSTEM_PATH}"
    own = {
        "PATH": path,
        "HOME": str(home),
        "LD_PRELOAD": str(WORK / "newer.so"),
        "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
        "TRITON_CACHE_DIR": str(home / "triton"),
        "TRITON_PTXAS_PATH": str(WORK / "cuda/bin/ptxas"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    return {**kept, **own, **({"CUDA_HOME": str(WORK / "cuda")} if compiles else {})}


class Hidden:
    """CUDA's folders below /usr/local, out of the way while something runs: engines look there without being told."""

    def __init__(self, wanted: bool) -> None:
        self.places = [place for place in Path("/usr/local").glob("cuda*")] if wanted else []

    def __enter__(self) -> None:
        for place in self.places:
            place.rename(place.with_name(f".aside-{place.name}"))

    def __exit__(self, *_: object) -> None:
        for place in self.places:
            place.with_name(f".aside-{place.name}").rename(place)


def ask_engine(compiles: bool) -> dict[str, Any]:
    """The answers to ASKED, as far as they come within two minutes."""
    words = [str(WORK / "bin/python"), "-c", ASKED]
    with Hidden(not compiles):
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment(compiles))
            said, error = done.stdout, done.stderr
        except subprocess.TimeoutExpired as cut:
            said, error = (cut.stdout or b"").decode(), "no further answer within 120 s"
    answers = [line.removeprefix("FOUND ") for line in said.splitlines() if line.startswith("FOUND ")]
    if not answers:
        raise Missing(error[-1500:])
    found: dict[str, Any] = json.loads(answers[-1])
    return found


def serve(model: str, compiles: bool, seconds: float, deadline: float) -> dict[str, Any]:
    """Starts `vllm serve`, and asks it for speed and memory if it answers in time."""
    seconds = min(seconds, deadline - time.monotonic())
    if seconds < LEAST_SECONDS:
        raise Missing("no time was left")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        str(WORK / "bin/vllm"),
        "serve",
        str(WORK / "models" / model),
        "--load-format",
        "dummy",
        "--port",
        str(port),
    ]
    words += [
        "--host",
        "127.0.0.1",
        "--served-model-name",
        "x",
        "--max-model-len",
        "32768",
        "--tensor-parallel-size",
        "1",
    ]
    log, began, before = WORK / "vllm.log", time.monotonic(), used_mib()
    with Hidden(not compiles), log.open("wb") as out:
        process = subprocess.Popen(
            words, stdout=out, stderr=out, env=environment(compiles), cwd=WORK, start_new_session=True
        )
        try:
            ready = wait_for(process, port, began + seconds)
            found: dict[str, Any] = {"ready_seconds": round(time.monotonic() - began, 1) if ready else None}
            found |= {"exit_status": process.poll(), "before_mib": before}
            if ready:
                found |= outcome(partial(measured, port))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = log.read_text(errors="replace").splitlines()
    return {**found, "log": [line[:300] for line in text if TELLING.search(line)][:120]}


def wait_for(process: subprocess.Popen[bytes], port: int, deadline: float) -> bool:
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                if answer.status == 200:
                    return True
        except OSError:
            time.sleep(0.25)
    return False


def measured(port: int) -> dict[str, Any]:
    """Seconds of requests, and MiB of the card."""
    found: dict[str, Any] = {"ready_mib": used_mib()}
    found["first answers of 16 tokens"] = [ask(port, 512, 16) for _ in range(3)]
    found["prompt of 2,000"] = [ask(port, 2000, 1) for _ in range(2)]
    found["256 tokens after 2,000"] = [ask(port, 2000, 256) for _ in range(2)]
    found["prompt of 30,000"] = [ask(port, 30000, 1) for _ in range(2)]
    found["256 tokens after 30,000"] = ask(port, 30000, 256)
    for together in (16, 64):
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(together) as pool:
            list(pool.map(lambda _: ask(port, 512, 256), range(together)))
        found[f"tokens per second of {together} together"] = round(together * 256 / (time.monotonic() - began), 1)
    return found | {"end_mib": used_mib()}


def ask(port: int, prompt: int, answer: int) -> float:
    """Seconds of one completion."""
    body = {"model": "x", "prompt": [random.randrange(BYTE_TOKENS) for _ in range(prompt)], "max_tokens": answer}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps({**body, **SAMPLING}).encode(),
        {"Content-Type": "application/json"},
    )
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=120) as response:
        response.read()
    return round(time.monotonic() - began, 3)


if __name__ == "__main__":
    sys.exit(main())
