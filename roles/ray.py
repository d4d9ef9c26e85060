"""What runs Ray on the hosts of a service, beside the Ray that its build has."""

from __future__ import annotations

from pathlib import Path

from pyinfra.api import deploy
from pyinfra.operations import files

import rigup.programs
from rigup.render.ray_unit import PROGRAM


@deploy("ray")
def ray() -> None:
    """Have the program by which a unit is its host's part of a cluster. Ray itself is in the build, at its version."""
    source = Path(rigup.programs.__file__).parent / Path(PROGRAM).name
    files.put(name=f"program {source.name}", src=str(source), dest=PROGRAM, mode="644")
