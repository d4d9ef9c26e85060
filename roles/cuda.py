"""The CUDA toolkit at the locked versions: apt pins, and the libraries that an engine links."""

from __future__ import annotations

from collections.abc import Mapping

from pyinfra.api import deploy

from rigup.facts.probe import Probe
from rigup.operations.driver.cuda_packages import pinned_packages
from rigup.operations.primitives.text_files import text_files
from rigup.systemd.driver_files import toolkit_files


@deploy("cuda")
def cuda(pins: Mapping[str, str], runtime: Mapping[str, str], probe: Probe) -> None:
    """Pin the toolkit's packages and install the libraries that a build links.

    pins: all packages with their versions. runtime: those to install here. The compiler is installed by the build
    step, only on hosts that compile.
    """
    text_files(name="CUDA toolkit held at the lock's versions", files=toolkit_files(pins))
    if runtime:
        pinned_packages(name=f"CUDA libraries {', '.join(runtime)}", packages=runtime, probe=probe)
