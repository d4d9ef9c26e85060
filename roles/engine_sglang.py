"""SGLang as a Python environment with the pinned version and wheels."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.builds.python import python_build
from rigup.plan import Build
from rigup.settings import Builder, PackageSource

# importing the server's arguments loads no kernel and so needs no GPU
IMPORT = "import torch, sglang, sglang.srt.server_args; print(sglang.__version__)"


@deploy("engine")
def engine_sglang(build: Build, name: str, source: PackageSource, builders: tuple[Builder, ...] = ()) -> None:
    """Create the environment in a folder of its own; torch and SGLang of the pinned version must import."""
    checks = ((("bin/python", "-I", "-c", IMPORT), build.version),)
    python_build(name=f"build {name}", build=build, build_name=name, source=source, checks=checks)
