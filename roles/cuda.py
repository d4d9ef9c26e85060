"""The CUDA toolkit at the locked versions: pins for all of it, and the libraries that an engine links."""

from __future__ import annotations

from collections.abc import Mapping

from pyinfra.api import deploy

from rigup.facts.probe import Probe
from rigup.operations.cuda_packages import pinned_packages
from rigup.operations.text_files import text_files
from rigup.render.driver_files import toolkit_files


@deploy("cuda")
def cuda(pins: Mapping[str, str], runtime: Mapping[str, str], probe: Probe) -> None:
    """Have the libraries that a build runs on, and pins for what it compiles with.

    The toolkit itself comes only to a host that compiles: the build's own step installs it there.
    """
    text_files(name="CUDA toolkit held at the lock's versions", files=toolkit_files(pins))
    if runtime:
        pinned_packages(name=f"CUDA libraries {', '.join(runtime)}", packages=runtime, probe=probe)
