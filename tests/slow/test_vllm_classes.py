"""vLLM's build for CPUs serves a tiny model of each class of attention that it has for them; its log says what the plan
said.

Only the checkpoints are made up (tests/tiny). docs/memory.md says what becomes of the other classes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.checkpoints.describe import describe
from rigup.checkpoints.repository import local_repository
from rigup.lock import Lock
from rigup.lockfile.catalogue_files import catalogue_edits, write_entries
from rigup.plan import Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.planner.memory.cpu import CPU_BLOCK_TOKENS
from rigup.project.planning import plan_service
from tests.slow.test_real_parsers import python
from tests.tiny.checkpoint import name_of, write_safetensors

pytestmark = [pytest.mark.slow, pytest.mark.rests_on("vLLM's package")]
__all__ = ["python"]

START_SECONDS = 900
SIZE = re.compile(r"CPU KV cache size: ([0-9,]+) tokens")
# Which of them answer; vLLM 0.32.0 reports Jamba's cache, and its first request ends it.
CLASSES = {
    "full": True,
    "sliding_window": True,
    "chunked_local": True,
    "latent": True,
    "gated_delta": True,
    "mamba": False,
}
# Those of most models of the catalogue. Each takes more than a minute of both processors.
OFTEN_RUN = ("full", "latent", "gated_delta")
# Plans count such states in the model's own type. On a processor with AVX-512 BF16, vLLM's build for CPUs keeps them in
# float32 unless it is told that type: vLLM 0.32.0 platforms/cpu.py.
FLAGS = {"gated_delta": {"--mamba-ssm-cache-dtype": "bfloat16"}}


def planned(kind: str, root: Path, port: int) -> tuple[Plan, Path]:
    """The plan of a tiny model on a rig without GPUs, and the folder of its checkpoint."""
    folder = root / name_of(kind)
    write_safetensors(folder, kind)
    found = describe(local_repository(folder, f"example/{folder.name}"), None, {})
    write_entries(root, catalogue_edits(root, found, ()))
    catalogue = load_catalogue(root)
    rig = read_rig({"gpus": [], "host_memory_gib": 16}, "test", catalogue)
    service: dict[str, Any] = {"model": folder.name, "engine": "vllm", "version": "0.32.0", "context": 2048}
    service |= {"port": port, "flags": FLAGS.get(kind, {})}
    (wanted,) = read_services({"chat": service}, "test", rig)
    return plan_service("host", "group", rig, wanted, catalogue, Lock()), folder


@contextmanager
def serving(plan: Plan, folder: Path, environment: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The plan's command line in an environment of vLLM, with the checkpoint from a folder."""
    _, *words = plan.command
    words[1] = str(folder)
    home = log.with_suffix(".home")
    assert plan.build is not None
    for name, version in plan.build.provides.items():  # as builds on hosts get it
        record = home / f"{name}-{version}.dist-info"
        record.mkdir(parents=True)
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    variables = {"PATH": f"{environment}/bin:{os.environ['PATH']}", "HOME": str(home), "HF_HUB_OFFLINE": "1"}
    variables["PYTHONPATH"] = str(home)
    argv = [str(environment / "bin/vllm"), *words]
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, env={**variables, **plan.environment}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(1)
        else:
            return
    raise AssertionError(log.read_text(errors="replace")[-2000:])


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.rare] * (kind not in OFTEN_RUN)) for kind in CLASSES]
)
def test_the_log_says_what_the_plan_says(kind: str, python: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    plan, folder = planned(kind, tmp_path, port)
    assert plan.verdict == "ok"
    log = tmp_path / "log"
    began = time.monotonic()
    with serving(plan, folder, python.parents[1], log) as process:
        wait_until_ready(process, port, log)
        print(f"{kind}: ready after {time.monotonic() - began:.0f} s")
        (size,) = SIZE.findall(log.read_text(errors="replace"))
        tokens = int(size.replace(",", ""))
        # On a processor without AMX, blocks of latent vectors are smaller.
        assert plan.kv_tokens == (tokens - tokens % CPU_BLOCK_TOKENS if kind == "latent" else tokens)
        if CLASSES[kind]:
            assert answered(port, plan)["usage"]["completion_tokens"] == 8


def answered(port: int, plan: Plan) -> dict[str, Any]:
    """The answer to a prompt: eight tokens of random weights."""
    name = plan.command[plan.command.index("--served-model-name") + 1]
    asked = {"model": name, "prompt": "Hello", "max_tokens": 8, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as reply:
        found: dict[str, Any] = json.load(reply)
    return found
