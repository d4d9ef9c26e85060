"""The source of each engine's tuner of fused-MoE kernels."""

import functools
import tomllib
from pathlib import Path
from typing import Self

from rigup.units import Frozen

FILE = Path(__file__).parents[1] / "data" / "tuners.toml"


class Tuner(Frozen):
    """One engine's tuner.

    archive, root: address and folder of the source archive, as in `lock.LockedSource`; {version} stands for the
    release. files: paths below the root, the program first, then the modules that it imports.
    """

    archive: str
    root: str
    files: tuple[str, ...]
    source: str

    def of(self, version: str) -> Self:
        """The tuner of one release."""
        filled = {key: getattr(self, key).replace("{version}", version) for key in ("archive", "root")}
        return self.model_copy(update=filled)


def tuner(engine: str, version: str) -> Tuner | None:
    """The tuner of an engine's release; None for an engine without fused-MoE configs."""
    found = _tuners().get(engine)
    return found.of(version) if found else None


@functools.cache
def _tuners() -> dict[str, Tuner]:
    return {name: Tuner.model_validate(entry) for name, entry in tomllib.loads(FILE.read_text()).items()}
