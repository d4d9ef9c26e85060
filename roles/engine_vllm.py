"""vLLM as a Python environment, at the pinned version and wheels."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.environments import python_build
from rigup.operations.wheels import PackageSource
from rigup.plan import Build

# no GPU is shown to what makes the environment: the command line of a CUDA build wants one, importing it does not
IMPORT = {
    "cuda": "import torch, vllm; print(vllm.__version__)",
    "cpu": "import torch, vllm, vllm._C; print(vllm.__version__)",
}
SCRIPT = "import pathlib, sys; print(pathlib.Path(sys.prefix, 'bin/vllm').read_text())"


@deploy("engine")
def engine_vllm(build: Build, name: str, source: PackageSource) -> None:
    """Have the environment in its own folder; it must import torch and vLLM, of the pinned version, and have `vllm`."""
    checks = (
        (("bin/python", "-I", "-c", IMPORT[build.variant]), build.version),
        (("bin/python", "-I", "-c", SCRIPT), f"/{name}/bin/python"),
    )
    python_build(name=f"build {name}", build=build, build_name=name, source=source, checks=checks)
