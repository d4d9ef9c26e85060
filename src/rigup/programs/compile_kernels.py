"""Runs on a host, with the Python of an engine's environment: compiles kernels that the engine's start would compile.

usage: compile_kernels.py --keep FOLDER [--made FOLDER [--load]] MODULE:FUNCTION ...

Each function returns FlashInfer's description of one of its modules. FLASHINFER_CUDA_ARCH_LIST has the compute
capabilities, CUDA_HOME the compiler, FLASHINFER_WORKSPACE_BASE a folder to work in. The libraries go where FlashInfer
looks before it compiles: flashinfer 0.7.2 jit/env.py, get_aot_artifacts. --keep: they are in this folder, too, each as
NAME.so. --made: a builder's folder of that kind, from which those are taken that were asked for; nothing else in it is
looked at. --load: loads the builder's libraries, and does nothing else. Prints a line before and after each.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import time
from pathlib import Path
from typing import Any


def described(name: str) -> Any:
    """What a function says of its module, and how to compile it."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)()


def put(library: Path, place: Path, kept: Path) -> None:
    """Puts a library into its place, and a link to it where it is kept."""
    part = place.with_suffix(".part")
    for folder in (place.parent, kept.parent):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(library, part)
    part.replace(place)
    kept.unlink(missing_ok=True)
    os.link(place, kept)


def main(names: list[str], keep: Path, made: Path | None, load: bool) -> None:
    """Goes through the modules, each of which is loaded, taken or compiled."""
    for number, name in enumerate(names, start=1):
        spec = described(name)
        library = made / f"{spec.name}.so" if made else None
        if library is not None and not library.is_file():
            library = None
        if load and library is None:
            continue
        doing = "loading" if load else "taking" if library else "compiling"
        print(f"{doing} kernels {number}/{len(names)}: {spec.name}", flush=True)
        began = time.monotonic()
        if load:
            spec.load(library)
        else:
            if library is None:
                spec.build(verbose=False)
                library = spec.jit_library_path
            put(library, spec.aot_path, keep / f"{spec.name}.so")
        print(f"{spec.name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--made", type=Path)
    parser.add_argument("--load", action="store_true")
    parser.add_argument("names", nargs="+")
    words = parser.parse_args()
    main(words.names, words.keep, words.made, words.load)
