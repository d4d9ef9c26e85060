"""llama.cpp built from source at the pinned build number."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.builds.builders import names_of
from rigup.operations.builds.source import source_build
from rigup.plan import Build
from rigup.settings import Builder, PackageSource


@deploy("engine")
def engine_llama_cpp(build: Build, name: str, source: PackageSource, builders: tuple[Builder, ...] = ()) -> None:
    """Compile into a folder of its own; `llama-server --version` must print the pinned build number.

    source: of the wheel of a library that it is compiled with. builders: whose build to copy; () compiles on this host.
    """
    source_build(
        name=f"build {name}" + (f", builder {names_of(builders)}" if builders else ""),
        build=build,
        build_name=name,
        check=(("bin/llama-server", "--version"), build.version.removeprefix("b")),
        source=source,
        builders=builders,
    )
