"""SGLang as a Python environment, at the pinned version and wheels."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.environments import python_build
from rigup.operations.wheels import PackageSource
from rigup.plan import Build

# importing the server's arguments loads no kernel, so that it needs no GPU
IMPORT = "import torch, sglang, sglang.srt.server_args; print(sglang.__version__)"


@deploy("engine")
def engine_sglang(build: Build, name: str, source: PackageSource) -> None:
    """Have the environment in its own folder; it must import torch and SGLang's server, of the pinned version."""
    checks = ((("bin/python", "-I", "-c", IMPORT), build.version),)
    python_build(name=f"build {name}", build=build, build_name=name, source=source, checks=checks)
