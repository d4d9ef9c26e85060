"""bin/gpu-check --engine on its way through all parts, with stand-ins for card, torch and vLLM; and what is carried."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_engine_pack import FAT_BINARY, MACHINE_CODE, PTX, clear_other_code, pack, pack_models, select

ROOT = Path(__file__).parents[2]
Entry = tuple[int, int, bytes]
NINETY, EIGHTY = (MACHINE_CODE, 90, b"ninety" * 8), (MACHINE_CODE, 80, b"eighty" * 8)
# Stands for vLLM: serves what is asked of it, but for one model, which ends as without a compiler.
SERVER = """\
import http.server, json, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.answer({})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"usage": {}})
    def answer(self, body):
        text = json.dumps(body).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(text))); self.end_headers()
        self.wfile.write(text)
    def log_message(self, *_): pass
def main():
    print("Using FLASH_ATTN attention backend", os.environ["CUDA_HOME"], flush=True)
    if "Qwen3-32B" in sys.argv[2]:
        sys.exit("RuntimeError: no")
    port = int(sys.argv[sys.argv.index("--port") + 1])
    http.server.ThreadingHTTPServer.request_queue_size = 128
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def container(*entries: Entry) -> bytes:
    """A container of machine code, as a library has it."""
    body = b"".join(struct.pack("<HHIQ12xI", kind, 1, 32, len(code), target) + code for kind, target, code in entries)
    return struct.pack("<IHHQ", FAT_BINARY, 1, 16, len(body)) + body


@pytest.mark.parametrize(
    ("entries", "gone"),
    [
        ([NINETY, EIGHTY], [EIGHTY]),
        (
            [(PTX, 80, b"text80" * 8), NINETY, (PTX, 90, b"text90" * 8)],
            [(PTX, 80, b"text80" * 8), (PTX, 90, b"text90" * 8)],
        ),
        ([EIGHTY, (PTX, 75, b"text75" * 8), (PTX, 80, b"text80" * 8)], [EIGHTY, (PTX, 75, b"text75" * 8)]),
        ([(PTX, 120, b"newer." * 8)], [(PTX, 120, b"newer." * 8)]),
    ],
)
def test_code_for_other_cards_is_cleared_and_the_rest_keeps_its_place(entries: list[Entry], gone: list[Entry]) -> None:
    library = bytearray(b"before" + container(*entries) + b"between" + container(NINETY) + b"after")
    before = bytes(library)
    assert clear_other_code(library, 90) == sum(len(code) for _, _, code in gone)
    assert len(library) == len(before)
    for entry in (*entries, NINETY):
        assert (library.find(entry[2]) == before.find(entry[2])) is (entry not in gone)


def test_bytes_that_look_like_a_container_stay() -> None:
    library = bytearray(b"x" * 7 + struct.pack("<IHHQ", FAT_BINARY, 1, 16, 2**40) + b"y" * 64)
    before = bytes(library)
    assert clear_other_code(library, 90) == 0 and bytes(library) == before


def test_what_is_carried_is_what_the_engine_loads(tmp_path: Path) -> None:
    there = ("vllm/a.py", "nvidia/lib/x.so", "vllm/__pycache__/a.pyc", "tilelang/b.py", "vllm-1.dist-info/METADATA")
    for name in (*there, "vllm-1.dist-info/RECORD", "triton/bin/ptxas"):
        (tmp_path / "all" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "all" / name).write_text("")
    select(tmp_path / "all", tmp_path / "kept", 90)
    kept = [str(path.relative_to(tmp_path / "kept")) for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert sorted(kept) == ["vllm-1.dist-info/METADATA", "vllm/a.py"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What is packed of a stand-in for vLLM, and the models."""
    site, folder = tmp_path / "kept", tmp_path / "gpu-engine"
    for name, text in {
        "vllm/__init__.py": "",
        "vllm/entrypoints/__init__.py": "",
        "vllm/entrypoints/cli/__init__.py": "",
        "vllm/entrypoints/cli/main.py": SERVER,
        "torch/__init__.py": "",
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    library = site / "torch/lib/libtorch_cuda.so"
    library.parent.mkdir()
    source = "extern int ncclOlder(void), ncclNewer(void); int f(void) { return ncclOlder() + ncclNewer(); }"
    words = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(words, input=source, text=True, check=True)
    folder.mkdir()
    pack(site, folder)
    pack_models(folder / "models.tar.xz")
    return folder


def machine(folder: Path) -> dict[str, str]:
    """A machine with PyTorch, an older NCCL, CUDA's compiler and one card."""
    libraries = folder / "python/nvidia/nccl/lib"
    libraries.mkdir(parents=True)
    (folder / "python/torch").mkdir()
    (folder / "python/torch/__init__.py").write_text("")
    words = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(libraries / "libnccl.so.2")]
    subprocess.run(words, input="int ncclOlder(void) { return 0; }", text=True, check=True)
    for name, text in {"cuda/bin/nvcc": "", "cuda/bin/ninja": "", "cuda/bin/nvidia-smi": "echo 1234"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    path = f"{folder}/cuda/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(folder / "python"), "PATH": path, "TMPDIR": str(folder)}


def test_every_part_says_what_it_found(folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "machine"
    there.mkdir()
    output = tmp_path / "result.json"
    words = [ROOT / "bin/gpu-check", "--engine", folder, "--output", output]
    done = subprocess.run(words, capture_output=True, text=True, env=machine(there))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(output.read_text())
    assert found["environment"]["functions_of_newer_libraries"] == ["ncclNewer"]
    assert "no attribute 'zeros'" in found["asked"]["context"]["error"], "the stand-in for torch has no card"
    served = found["Qwen3-8B, BF16"]
    assert served["ready_seconds"] is not None and served["ready_mib"] == 1234
    assert len(served["first answers of 16 tokens"]) == 3
    assert served["log"] == [f"Using FLASH_ATTN attention backend {there}/rigup-gpu-engine/cuda"]
    failed = found["Qwen3-32B, FP8"]
    assert (failed["ready_seconds"], failed["exit_status"]) == (None, 1)
    assert failed["log"][-1] == "RuntimeError: no"
    assert not [name for name in found if "no compiler" in name], "CUDA's folders are only renamed when asked to"


def test_a_pack_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "bin/gpu-check", "--engine", tmp_path], capture_output=True, text=True)
    assert done.returncode == 2
    assert "hint: bin/gpu-check --pack-engine, where there is a network" in done.stdout


def test_each_model_has_a_token_for_each_of_its_numbers(folder: Path) -> None:
    with tarfile.open(folder / "models.tar.xz") as tar:
        tar.extractall(folder)
    for model in (folder / "models").iterdir():
        config = json.loads((model / "config.json").read_text())
        tokens = json.loads((model / "tokenizer.json").read_text())
        numbers = {*tokens["model"]["vocab"].values(), *(token["id"] for token in tokens["added_tokens"])}
        assert numbers == set(range(config["vocab_size"])), model.name
