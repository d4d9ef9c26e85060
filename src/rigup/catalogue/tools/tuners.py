"""The source of each engine's tuner of fused-MoE kernels."""

from functools import cache

from rigup.catalogue.data_files import toolkit_facts
from rigup.catalogue.versions import of_release
from rigup.units import Frozen


class Tuner(Frozen):
    """One engine's tuner.

    archive, root: address and folder of the source archive, as in `lock.LockedSource`; {version} stands for the
    release. files: paths below the root, the program first, then the modules that it imports.
    """

    archive: str
    root: str
    files: tuple[str, ...]
    source: str


class Tuners(Frozen):
    """The tuners of the engines that have fused-MoE configs."""

    vllm: Tuner
    sglang: Tuner


def tuner(engine: str, version: str) -> Tuner | None:
    """The tuner of an engine's release; None for an engine without fused-MoE configs."""
    found = dict(_tuners()).get(engine)
    return of_release(found, version, "archive", "root") if found else None


@cache
def _tuners() -> Tuners:
    return toolkit_facts("tuners.toml", Tuners)
