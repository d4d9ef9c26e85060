"""vLLM for real: locked, planned and applied to a booted machine, where it serves a tiny MiniMax M2 on the CPU.

Only the checkpoint is made up, and the hub a stand-in. The packages come from the index that pip is set up for here,
and go to the machine from a wheelhouse, which is kept in the cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.cache import cache_folder
from rigup.errors import MissingTool
from rigup.lab import prerequisites
from rigup.lab.hub import Hub
from rigup.lab.lab import Lab
from rigup.lock import load_lock
from tests import tiny_minimax_m2 as tiny
from tests.lab.fleet import Fleet

pytestmark = [pytest.mark.slow, pytest.mark.lab]
# wheels of 0.9 GB and an environment of 3.4 GB; both take memory of this machine
DISK = "6g"
SECONDS = 900


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """One bare machine without GPUs, a hub with the tiny checkpoint, and a fleet that wants vLLM on it."""
    try:
        prerequisites.check()
    except MissingTool as missing:
        if os.environ.get("RIGUP_REQUIRE_LAB") == "1":
            raise
        pytest.skip(missing.message)
    tiny.describe(tmp_path)
    tiny.write(tmp_path / "served" / tiny.REPO)
    lab = Lab.up(f"vllm{os.getpid()}", hosts=1, disk=DISK)
    try:
        hub = Hub.start(tmp_path / "served", lab=lab.record.name)
        outside = Hub.start(tmp_path / "served", tmp_path / "hub")
        fleet = Fleet(lab, hub, tmp_path, cache_folder().parent)
        memory = int(fleet.host.tell("sed -n 's/^MemTotal: *\\([0-9]*\\).*/\\1/p' /proc/meminfo")) / 2**20
        (tmp_path / "inventories").mkdir()
        (tmp_path / "group_data").mkdir()
        (tmp_path / "inventories/rehearsal.py").write_text(f"boxes = {[fleet.host.machine.inventory]!r}\n")
        service = {"model": tiny.MODEL, "engine": "vllm", "version": "0.32.0", "context": 2048, "reasoning": True}
        (tmp_path / "group_data/boxes.py").write_text(
            f'rig = {{"gpus": [], "host_memory_gib": {memory:.1f}}}\nservices = {{"chat": {service!r}}}\n'
            f'wheelhouse = "{_house()}"\n'
        )
        # the same hub, as the machines of the lab reach it and as this one does
        (tmp_path / "inside").write_text(f"hub = {hub.url!r}\n")
        (tmp_path / "outside").write_text(f"hub = {outside.url!r}\n")
        yield fleet
        for run in fleet.runs:
            if run.process.poll() is None:
                run.kill()
        outside.stop()
    finally:
        lab.down()


def _house() -> Path:
    return cache_folder() / "tests" / "wheelhouse"


def _fill_wheelhouse(lock: Path) -> None:
    """Downloads what the lock names and the wheelhouse lacks; pip checks the hashes."""
    locked = load_lock(lock)
    (environment,) = locked.environments
    assert locked.uv is not None
    wheels = _house() / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    files = {**environment.files, **{name: sha for name, sha in locked.uv.files.items() if "x86_64" in name}}
    lines = [
        f"{name.split('-')[0]}=={name.split('-')[1]} --hash=sha256:{sha256}\n"
        for name, sha256 in files.items()
        if not (wheels / name).exists()
    ]
    if lines:
        listed = lock.with_name("requirements.txt")
        listed.write_text("".join(lines))
        words = [
            "download",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--dest",
            str(wheels),
        ]
        subprocess.run([sys.executable, "-m", "pip", *words, "-r", str(listed)], check=True, timeout=SECONDS)


def test_vllm_serves_minimax_m2_on_a_cpu(fleet: Fleet) -> None:
    began = time.monotonic()
    described = fleet.root / "group_data/boxes.py"
    text = described.read_text()
    described.write_text(text + (fleet.root / "outside").read_text())
    fleet.rigup("lock")
    described.write_text(text + (fleet.root / "inside").read_text())
    locked = time.monotonic()
    _fill_wheelhouse(fleet.root / "rigup.lock")
    filled = time.monotonic()
    first = fleet.start("apply", "--yes", "--json")
    assert first.wait(SECONDS) == 0, first.text
    (result,) = first.json["hosts"]
    (answer,) = result["answers"]
    print(
        f"lock {locked - began:.0f} s, wheelhouse {filled - locked:.0f} s, apply {time.monotonic() - filled:.0f} s, "
        f"{answer['tokens']} tokens at {answer['tokens_per_second']} tokens/s: {answer['text']}"
    )
    assert answer["tokens"] == 48 and answer["tokens_per_second"] > 0

    host = fleet.host
    (build,) = host.tell("ls -A /opt/rigup/builds").split()
    assert build.startswith("vllm-0.32.0-")
    assert float(host.tell("systemd-analyze security --no-pager rigup-chat | tail -n1").split(":")[1].split()[0]) <= 3.0
    asked = {"model": "tiny-minimax-m2", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
    curl = f"curl -s -H 'Content-Type: application/json' -d '{json.dumps(asked)}'"
    message = json.loads(host.tell(f"{curl} http://127.0.0.1:8000/v1/chat/completions"))["choices"][0]["message"]
    # the template opens <think>, and the tiny model never closes it: all of it is the parser's reasoning
    assert message["content"] is None and message["reasoning"]
    written = "find /opt/rigup/builds -newer /etc/rigup/services/chat/current -type f | head -n 3"
    assert host.tell(written) == ""

    second = fleet.apply().json["hosts"][0]
    assert (second["state"], second["changes"]) == ("unchanged", [])
    (row,) = fleet.rigup("status", "--json").json["services"]
    assert (row["health"], row["drift"], row["build"]) == ("answers", "none", build)
