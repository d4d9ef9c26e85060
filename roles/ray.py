"""The program that runs Ray on the hosts of a node group; Ray itself is part of the build."""

from __future__ import annotations

from pathlib import Path

from pyinfra.api import deploy

from rigup.operations.primitives import root_files
from rigup.programs import program_file
from rigup.systemd.ray import PROGRAM


@deploy("ray")
def ray() -> None:
    """Install the program with which a unit joins its host to the Ray cluster."""
    source = program_file(Path(PROGRAM).name)
    root_files.programs(name="Ray program", folder=str(Path(PROGRAM).parent), sources=(source,))
