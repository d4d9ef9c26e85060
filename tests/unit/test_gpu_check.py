"""bin/gpu-check's way through all its parts, with stand-ins for the card, its programs and the engine."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CARD = "NVIDIA GeForce RTX 3090"
PROBE = f"""echo os debian-12; echo "nvml {{'gpu': 0, 'name': '{CARD}', 'uuid': 'GPU-1'}}\""""
VERIFY = """print('{"gpu": 0, "bus": "0000:01:00.0"}')\nprint('{"done": true}')"""
# llama-server as far as the check uses it: its log, its health, one answer
SERVER = f"""#!{sys.executable}
import http.server, json, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
assert sys.argv[sys.argv.index("--model") + 1].endswith("/model.gguf"), sys.argv
print("load_tensors:        CUDA0 model buffer size =     1.50 MiB", flush=True)
print("llama_kv_cache:      CUDA0 KV buffer size =     8.00 MiB", flush=True)
print("sched_reserve:      CUDA0 compute buffer size =   100.25 MiB", flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(data))); self.end_headers()
        self.wfile.write(data)
    def do_GET(self): self.answer({{"status": "ok"}})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({{"timings": {{"predicted_per_second": 150.0}}}})
    def log_message(self, *words): pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
SMI = "#!/bin/sh\necho 1200\n"
PLAN = {
    "memory": [{"weights_mib": 2, "kv_cache_mib": 8, "overhead_mib": 928}],
    "decode_tokens_per_second": {"low": 80.0, "high": 200.0},
    "command": ["bin/llama-server", "--model", "/planned.gguf", "--port", "8000"],
    "environment": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    "capability": "8.6",
}


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def checked(root: Path, *options: str, card: str = CARD) -> dict[str, Any]:
    pack = root / "pack"
    pack.mkdir()
    for name, text in {"probe.sh": PROBE, "verify.py": VERIFY, "model.gguf": "", "kernels.json": "[]"}.items():
        (pack / name).write_text(text)
    (pack / "plans.json").write_text(json.dumps({"cards": {card: PLAN}}))
    programs = root / "bin"
    programs.mkdir()
    program(programs / "nvidia-smi", SMI)
    environment = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin"}
    output = root / "result.json"
    done = subprocess.run(
        [ROOT / "bin/gpu-check", pack, "--output", output, *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def test_all_parts_and_what_was_planned_beside_what_was_measured(tmp_path: Path) -> None:
    server = program(tmp_path / "llama-server", SERVER)
    found = checked(tmp_path, "--server", str(server))
    assert found["card"] == CARD
    assert found["probe"][0] == "os debian-12"
    assert found["links"][-1] == {"done": True}
    assert found["serving"]["buffers_mib"] == {"model": 1.5, "KV": 8.0, "compute": 100.25}
    assert found["compared"] == {
        "weights_mib": [2, 1.5],
        "kv_cache_mib": [8, 8.0],
        "overhead_mib": [928, -9.5],
        "compute_mib": [None, 100.25],
        "total_mib": [938, 0],
        "decode_tokens_per_second": [[80.0, 200.0], 150.0],
    }
    assert set(found["part_seconds"]) == {"probe", "links", "build", "serving", "moe_kernel", "compared"}


def test_what_a_machine_lacks_is_said_and_the_rest_is_done(tmp_path: Path) -> None:
    found = checked(tmp_path, card="another card")
    assert "nvcc is not on this machine" in found["build"]["missing"] or "this card" in found["build"]["missing"]
    assert "no llama-server" in found["serving"]["missing"]
    assert found["compared"]["missing"] == "Missing: nothing was served"
    assert found["links"][-1] == {"done": True}


def test_without_a_pack_the_way_to_make_one_is_said(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "bin/gpu-check", tmp_path], capture_output=True, text=True)
    assert done.returncode == 2
    assert "hint: bin/gpu-check --pack, where there is a network" in done.stdout
