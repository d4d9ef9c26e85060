"""Runs on a host, with the Python of an engine's environment: compiles kernels that the engine's start would compile.

usage: compile_kernels.py MODULE:FUNCTION ...

Each function returns FlashInfer's description of one of its modules. FLASHINFER_CUDA_ARCH_LIST has the compute
capabilities, CUDA_HOME the compiler, FLASHINFER_WORKSPACE_BASE a folder to work in. The libraries go where FlashInfer
looks before it compiles: flashinfer 0.7.2 jit/env.py, get_aot_artifacts. Prints a line before and after each.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import time
from typing import Any


def described(name: str) -> Any:
    """What a function says of its module, and how to compile it."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)()


def compile_kernel(spec: Any) -> None:
    """Compiles a module and puts its library into the environment."""
    spec.build(verbose=False)
    spec.aot_path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(spec.jit_library_path, spec.aot_path)


if __name__ == "__main__":
    for number, name in enumerate(sys.argv[1:], start=1):
        spec = described(name)
        print(f"compiling kernels {number}/{len(sys.argv) - 1}: {spec.name}", flush=True)
        began = time.monotonic()
        compile_kernel(spec)
        print(f"{spec.name}: {time.monotonic() - began:.0f} s", flush=True)
