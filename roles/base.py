"""What every host needs before anything else: a few Debian packages, the worker user, rigup's folders and programs."""

from __future__ import annotations

from pathlib import Path

from pyinfra.api import deploy

import rigup.programs
from rigup import layout
from rigup.operations import placed
from rigup.operations.packages import debian_packages
from rigup.operations.users import system_user

FOLDERS = (layout.BUILDS, layout.PROGRAMS, layout.WEIGHTS, f"{layout.CONFIGURATION}/services")
PACKAGES = ("ca-certificates", "curl", "python3")
PROGRAMS = (
    "ask.py",
    "build_environment.py",
    "build_source.py",
    "curl_transfers.py",
    "pull_image.py",
    "fetch_weights.py",
    "unit_status.py",
    "weights_folder.py",
)


@deploy("base")
def base(packages: tuple[str, ...], programs: tuple[str, ...] = ()) -> None:
    """Have the packages, the worker user, the folders under the three roots, and the programs that run on the host.

    programs: those that not every host has.
    """
    debian_packages({*PACKAGES, *packages})
    system_user(
        name=f"user {layout.WORKER_USER}",
        user=layout.WORKER_USER,
        description="rigup worker, compiles and downloads",
        home="/var/lib/rigup",
    )
    placed.folders(name="rigup's folders", paths=FOLDERS)
    sources = tuple(Path(rigup.programs.__file__).parent / program for program in (*PROGRAMS, *programs))
    placed.programs(name="rigup's programs", folder=layout.PROGRAMS, sources=sources)
