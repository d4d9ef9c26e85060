"""What runs Ray on the hosts of a service, beside the Ray that its build has."""

from __future__ import annotations

from pathlib import Path

from pyinfra.api import deploy

import rigup.programs
from rigup.operations import placed
from rigup.render.ray_unit import PROGRAM


@deploy("ray")
def ray() -> None:
    """Have the program by which a unit is its host's part of a cluster. Ray itself is in the build, at its version."""
    source = Path(rigup.programs.__file__).parent / Path(PROGRAM).name
    placed.programs(name="program of Ray's", folder=str(Path(PROGRAM).parent), sources=(source,))
