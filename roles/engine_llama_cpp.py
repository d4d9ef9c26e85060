"""llama.cpp from source, at the pinned build."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.builds import source_build
from rigup.operations.wheels import PackageSource
from rigup.plan import Build


@deploy("engine")
def engine_llama_cpp(build: Build, name: str, source: PackageSource) -> None:
    """Have the build in its own folder; `llama-server --version` must name the pinned build number.

    source: of Python packages; there are none in this build.
    """
    number = build.version.removeprefix("b")
    source_build(
        name=f"build {name}", build=build, build_name=name, check=("bin/llama-server", "--version"), expect=number
    )
