"""bin/gpu-check's way through all its parts, with stand-ins for the card, its programs and the engine."""

from __future__ import annotations

import json
import lzma
import os
import stat
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_check import EXPERTS_IN_HOST_MEMORY, Missing, full_size

ROOT = Path(__file__).parents[2]
CARD = "NVIDIA GeForce RTX 3090"
PROBE = f"""echo os debian-12; echo "nvml {{'gpu': 0, 'name': '{CARD}', 'uuid': 'GPU-1'}}\""""
VERIFY = """print('{"gpu": 0, "bus": "0000:01:00.0"}')\nprint('{"done": true}')"""
# llama-server as far as the check uses it: its log, its health, one answer
SERVER = """#!/usr/bin/env python3
import http.server, json, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
model = sys.argv[sys.argv.index("--model") + 1]
assert model.endswith(("/model.gguf", "/shape.gguf")), sys.argv
print("load_tensors:   CPU_Mapped model buffer size =     0.25 MiB", flush=True)
print("load_tensors:        CUDA0 model buffer size =     1.50 MiB", flush=True)
print("llama_kv_cache:      CUDA0 KV buffer size =     8.00 MiB", flush=True)
print("sched_reserve:      CUDA0 compute buffer size =   100.25 MiB", flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(data))); self.end_headers()
        self.wfile.write(data)
    def do_GET(self): self.answer({"status": "ok"})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"timings": {"predicted_per_second": 150.0}})
    def log_message(self, *words): pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
PROGRAMS = {
    "nvidia-smi": "#!/bin/sh\necho 1200\n",
    "nvcc": "#!/bin/sh\necho 'Build cuda_13.0.r13.0'\n",
    "cmake": '#!/bin/sh\nprintf "%s\\n" "$@" >"$(dirname "$0")/cmake.said"\n',
    "ninja": '#!/bin/sh\nmkdir -p "$2/bin" && cp "$(dirname "$0")/llama-server" "$2/bin/"\n',
    "llama-server": SERVER,
}
PLAN: dict[str, Any] = {
    "memory": [{"weights_mib": 2, "kv_cache_mib": 8, "overhead_mib": 928}],
    "decode_tokens_per_second": {"low": 80.0, "high": 200.0},
    "command": ["bin/llama-server", "--model", "/planned.gguf", "--port", "8000"],
    "environment": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    "flags": ["-DGGML_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=86"],
}
HEAD = b"GGUF"
SHAPE = {"quant": "Q4_K_M", "experts": True, "fillings": [("ones", 64), ("Q4_K", 144 * 20), ("Q6_K", 210 * 3)]}


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def checked(root: Path, card: str = CARD) -> dict[str, Any]:
    pack = root / "pack"
    pack.mkdir()
    for name, text in {"probe.sh": PROBE, "verify.py": VERIFY, "model.gguf": "", "kernels.json": "[]"}.items():
        (pack / name).write_text(text)
    (pack / "plans.json").write_text(json.dumps({"cards": {card: PLAN}}))
    (pack / "shapes").mkdir()
    (pack / "shapes/Shape.head.xz").write_bytes(lzma.compress(HEAD))
    (pack / "shapes/Shape.json").write_text(json.dumps({**SHAPE, "cards": {card: PLAN}}))
    with tarfile.open(pack / "engine.tar.xz", "w:xz") as archive:
        archive.addfile(tarfile.TarInfo("engine/CMakeLists.txt"))
    programs = root / "bin"
    programs.mkdir()
    for name, text in PROGRAMS.items():
        program(programs / name, text)
    environment = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin"}
    output = root / "result.json"
    done = subprocess.run(
        [ROOT / "bin/gpu-check", pack, "--output", output],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def test_all_parts_and_what_was_planned_beside_what_was_measured(tmp_path: Path) -> None:
    found = checked(tmp_path)
    assert (found["card"], found["machine"]["nvcc"]) == (CARD, "Build cuda_13.0.r13.0")
    said = (tmp_path / "bin/cmake.said").read_text().splitlines()
    assert [*PLAN["flags"], f"-DCMAKE_CUDA_COMPILER={tmp_path}/bin/nvcc"] == said[-3:]
    assert found["probe"][0] == "os debian-12"
    assert found["links"][-1] == {"done": True}
    assert found["serving"]["buffers_mib"] == {
        "CPU_Mapped": {"model": 0.25},
        "CUDA0": {"model": 1.5, "KV": 8.0, "compute": 100.25},
    }
    assert found["compared"] == {
        "weights_mib": [2, 1.5],
        "kv_cache_mib": [8, 8.0],
        "overhead_mib": [928, -9.5],
        "compute_mib": [None, 100.25],
        "total_mib": [938, 0],
        "decode_tokens_per_second": [[80.0, 200.0], 150.0],
    }
    parts = ("machine", "probe", "links", "build", "serving", "moe_kernel", "compared", "Shape")
    assert set(found["part_seconds"]) == {*parts}


def test_a_model_of_full_size_is_made_and_served_as_planned_and_with_its_experts_in_host_memory(tmp_path: Path) -> None:
    found = checked(tmp_path)["Shape"]
    assert (found["bytes"], found["quant"]) == (len(HEAD) + 4 * 16 + 144 * 20 + 210 * 3, "Q4_K_M")
    assert found["compared"]["weights_mib"] == [2, 1.5]
    assert [len(found[name]["timings"]) for name in ("serving", *EXPERTS_IN_HOST_MEMORY)] == [3, 2, 2]


def test_a_model_for_which_there_is_no_room_is_not_begun(tmp_path: Path) -> None:
    packed = tmp_path / "Shape.json"
    packed.write_text(json.dumps({**SHAPE, "fillings": [("Q4_K", 10**18)], "cards": {CARD: PLAN}}))
    with pytest.raises(Missing, match="set TMPDIR"):
        full_size("llama-server", packed, CARD, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["Shape.json"]


def test_what_a_machine_lacks_is_said_and_the_rest_is_done(tmp_path: Path) -> None:
    found = checked(tmp_path, card="another card")
    assert found["build"]["missing"].startswith("Missing: the catalogue ")
    assert "no llama-server" in found["serving"]["missing"]
    assert found["compared"]["missing"] == "Missing: nothing was served"
    assert found["links"][-1] == {"done": True}


def test_without_a_pack_the_way_to_make_one_is_said(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "bin/gpu-check", tmp_path], capture_output=True, text=True)
    assert done.returncode == 2
    assert "hint: bin/gpu-check --pack, where there is a network" in done.stdout
