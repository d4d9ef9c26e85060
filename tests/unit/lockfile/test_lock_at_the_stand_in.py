"""Locking a checkpoint in safetensors at the lab's hub stand-in, which the real client is held to as well."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.artifacts import LockedEnvironment, LockedUv
from rigup.catalogue.catalogue import load_catalogue
from rigup.lab.hub.content import commit_id
from rigup.lab.hub.server_process import StandInHub
from rigup.lab.hub.sparse_files import write_safetensors
from rigup.lock import Lock
from rigup.lockfile.text import lock_text
from tests import mistral_format
from tests.command_line import CommandLine

REPO = "org/tiny"
WEIGHTS = {f"model-{n:05}-of-00002.safetensors": os.urandom(2_000_000) for n in range(2)}
INDEX = json.dumps({"weight_map": {f"layers.{n}": name for n, name in enumerate(WEIGHTS)}}).encode()
WANTED = {
    **WEIGHTS,
    "chat_template.jinja": b"{{ messages }}",
    "config.json": b"{}",
    "model.safetensors.index.json": INDEX,
    "tokenizer.json": b"[" + b" " * 1_100_000 + b"]",
}
UNWANTED = {
    "README.md": b"read",
    "original/consolidated.00.pth": b"p" * 1_500_000,
    "consolidated.safetensors": b"c" * 10,
}
ENTRY = """\
[[checkpoint]]
repo = "org/tiny"
model = "MiniMax-M2.5"
quant = "FP8"
scheme = "fp8_block128"
scope = "linear"
bytes = 230134260592
minimum_versions = { vllm = "0.12.0" }
"""
GROUP_DATA = """\
rig = {"gpus": "4x RTX PRO 6000 Blackwell Workstation Edition", "host_memory_gib": 256}
services = {"chat": {"checkpoint": "org/tiny", "engine": "vllm", "tensor_parallel": 4}}
"""

# A repository with both formats, of which engines load Mistral's own.
MISTRAL = "org/Tiny-Mistral"
MISTRAL_WEIGHTS = [f"consolidated-{n:05}-of-00002.safetensors" for n in (1, 2)]
MISTRAL_FILES = ["config.json", "consolidated.safetensors.index.json", "params.json", "tekken.json"]

COMPILER = "nvidia_cuda_nvcc-13.0.88-py3-none-any.whl"
WHEEL = {COMPILER: "c" * 64, "vllm-1-py3-none-any.whl": "a" * 64}
UV = {f"uv-1-py3-none-manylinux_2_28_{architecture}.whl": "b" * 64 for architecture in ("x86_64", "aarch64")}
VERSION = next(engine.default_version for engine in load_catalogue().engines if engine.name == "vllm")
# The packages are locked already, so that only the hub is asked here.
WITH_PACKAGES = Lock(
    uv=LockedUv(version="1", files=UV),
    environments=(LockedEnvironment(engine="vllm", version=VERSION, python="3.12.1", files=WHEEL),),
)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInHub]:
    root = tmp_path_factory.mktemp("hub")
    for path, content in {**WANTED, **UNWANTED}.items():
        (root / "root" / REPO / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "root" / REPO / path).write_bytes(content)
    both_formats(root / "root" / MISTRAL)
    hub = StandInHub.start(root / "root", root / "state")
    yield hub
    hub.stop()


def both_formats(folder: Path) -> None:
    """A tiny model with shared experts: two shards in Mistral's format, and as many with transformers' names."""
    mistral_format.write(folder, mistral_format.SEEING, config__json=b'{"architectures": ["Mistral4ForCausalLM"]}')
    (folder / "consolidated.safetensors").unlink()
    every = list(mistral_format.tensors(mistral_format.SEEING))
    halves = dict(zip(MISTRAL_WEIGHTS, (every[:20], every[20:]), strict=True))
    for name, part in halves.items():
        write_safetensors(folder / name, part)
        write_safetensors(folder / name.replace("consolidated", "model"), part)
    places = {tensor.name: name for name, part in halves.items() for tensor in part}
    (folder / MISTRAL_FILES[1]).write_text(json.dumps({"weight_map": places}))
    (folder / "model.safetensors.index.json").write_text("{}")
    (folder / "README.md").write_text("read")


@pytest.fixture
def line(tmp_path: Path, hub: StandInHub) -> CommandLine:
    hub.faults()
    made = CommandLine(tmp_path)
    made.describe(["a.example", "b.example"], GROUP_DATA + f'hub = "{hub.url}"\n')
    (made.fleet / "catalogue/checkpoints").mkdir(parents=True)
    made.write("catalogue/checkpoints/own.toml", ENTRY)
    made.write("rigup.lock", lock_text(WITH_PACKAGES))
    return made


def test_files_and_hashes_of_one_format(line: CommandLine, hub: StandInHub) -> None:
    done = line.call("lock", "--json")
    assert done.code == 0, done.text
    every = {path: hashlib.sha256(content).hexdigest() for path, content in {**WANTED, **UNWANTED}.items()}
    changes = {change["name"]: change for change in done.json["changes"]}
    assert list(changes) == ["checkpoint org/tiny FP8", "driver"]
    assert changes["checkpoint org/tiny FP8"]["after"].startswith(f"{commit_id(every)[:12]} (6 files, ")
    assert done.json["warnings"] == [
        "org/tiny FP8: 4.0 MB of weights on the hub, 230.1 GB in the catalogue; plans use the size on the hub"
    ]
    text = (line.fleet / "rigup.lock").read_text()
    for path, content in WANTED.items():
        block = f'path = "{path}"\nsize = {len(content)}\nsha256 = "{hashlib.sha256(content).hexdigest()}"\n'
        assert block in text
    assert text.count("[[checkpoints.files]]") == len(WANTED)
    downloaded = {entry["path"].rpartition("/")[2] for entry in hub.log() if "/resolve/" in entry["path"]}
    headers = {path for path in downloaded if path.endswith(".safetensors")}
    assert downloaded - headers == {"chat_template.jinja", "config.json", "model.safetensors.index.json"}
    assert done.json["not_locked"] == []
    assert commit_id(every) in line.call("plan").out


def test_mistrals_own_format_is_read_and_locked_without_the_other(
    line: CommandLine, hub: StandInHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    added = line.call("model", "add", MISTRAL, "--json")
    assert added.json["checkpoint"]["mistral_class"] == "PixtralForConditionalGeneration"
    assert added.json["model"]["architectures"] == ["Mistral4ForCausalLM"]
    service = {"checkpoint": MISTRAL, "engine": "vllm", "context": 2048}
    line.describe(["a.example"], f'rig = {{"gpus": "H200"}}\nservices = {{"chat": {service}}}\nhub = "{hub.url}"\n')
    done = line.call("lock", "--json")
    assert done.code == 0, done.text
    assert done.json["warnings"] == []
    text = (line.fleet / "rigup.lock").read_text()
    assert re.findall(r'path = "(.*)"', text) == sorted([*MISTRAL_WEIGHTS, *MISTRAL_FILES])
    planned = line.call("plan").out
    assert all(f"{option} mistral" in planned for option in ("--config-format", "--load-format", "--tokenizer-mode"))
    assert f"{MISTRAL} FP8" in planned


def test_an_entry_in_the_wrong_format_is_told(line: CommandLine, hub: StandInHub) -> None:
    line.write(
        "catalogue/checkpoints/own.toml", ENTRY.replace('scope = "linear"', 'mistral_class = "MistralForCausalLM"')
    )
    refused = line.run("lock")
    assert refused.code == 2
    assert refused.err.splitlines()[-1] == (
        "hint: delete its entry in catalogue/checkpoints/, then: rigup model add org/tiny"
    )


def test_exit_codes_and_what_is_said(line: CommandLine) -> None:
    stale = line.run("lock", "--check")
    assert (stale.code, stale.err) == (1, "hint: rigup lock\n")
    assert stale.out.splitlines() == [
        "rigup.lock is stale:",
        "  driver is missing",
        "  checkpoint org/tiny FP8 is missing",
    ]
    done = line.call("lock")
    assert done.code == 0
    assert [text.partition("  ")[0] for text in done.out.splitlines()] == ["+ checkpoint org/tiny FP8", "+ driver"]
    assert "warning: org/tiny FP8: 4.0 MB" in done.err
    again = line.call("lock", HF_ENDPOINT="http://127.0.0.1:9")
    assert (again.code, again.out) == (0, "rigup.lock: nothing to change\n")
    assert (line.call("lock", "--check").code, line.call("lock", "--check").out) == (0, "rigup.lock pins everything\n")
    assert line.call("lock", "--check", "--json").json == {"schema": 1, "stale": []}
    assert line.call("lock", "--prune", "--limit", "a.example").code == 2
    assert line.call("lock", "--check", "--upgrade", "driver").code == 2


def test_a_repository_behind_a_token(line: CommandLine, hub: StandInHub) -> None:
    before = (line.fleet / "rigup.lock").read_bytes()
    hub.faults(token="hf_right")
    refused = line.call("lock")
    where = f"group_data/boxes.py: services.chat: org/tiny: the hub at {hub.url.removeprefix('http://')}"
    assert (refused.code, f"rigup: {where} requires a token" in refused.err) == (2, True)
    line.write("token", "hf_right\n")
    (line.fleet / "token").chmod(0o600)
    line.write("group_data/boxes.py", GROUP_DATA + f'hub = "{hub.url}"\nhub_token_file = "token"\n')
    hub.faults(token="hf_right", gated=True)
    refused = line.call("lock")
    assert (refused.code, f"rigup: {where} does not allow" in refused.err) == (2, True)
    assert (line.fleet / "rigup.lock").read_bytes() == before
    hub.faults(token="hf_right")
    assert line.call("lock").code == 0
    assert "hf_right" not in (line.fleet / "rigup.lock").read_text()


def test_a_hub_that_stumbles_twice(line: CommandLine, hub: StandInHub) -> None:
    hub.faults(fail_first=2, fail_status=503)
    assert line.call("lock").code == 0
