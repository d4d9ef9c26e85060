"""vLLM as a Python environment with the pinned version and wheels."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.builds.python import python_build
from rigup.plan import Build
from rigup.settings import Builder, PackageSource

# the build job sees no GPU: a CUDA build's command line needs one, importing it does not
IMPORT = {
    "cuda": "import torch, vllm; print(vllm.__version__)",
    "cpu": "import torch, vllm, vllm._C; print(vllm.__version__)",
}
SCRIPT = "import pathlib, sys; print(pathlib.Path(sys.prefix, 'bin/vllm').read_text())"


@deploy("engine")
def engine_vllm(build: Build, name: str, source: PackageSource, builders: tuple[Builder, ...] = ()) -> None:
    """Create the environment in a folder of its own; torch and vLLM of the pinned version must import, `vllm` exist."""
    checks = (
        (("bin/python", "-I", "-c", IMPORT[build.variant]), build.version),
        (("bin/python", "-I", "-c", SCRIPT), f"/{name}/bin/python"),
    )
    python_build(name=f"build {name}", build=build, build_name=name, source=source, checks=checks)
