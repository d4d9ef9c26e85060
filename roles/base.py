"""Base of every host: a few Debian packages, the worker user, rigup's folders and programs."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import deploy
from pyinfra.facts.deb import DebPackages

from rigup import layout
from rigup.operations.apt.packages import debian_packages
from rigup.operations.primitives import root_files
from rigup.operations.primitives.text_files import text_files
from rigup.operations.primitives.users import system_user
from rigup.programs import program_file

# Earlier versions kept job descriptions here, where the worker could change them.
OUTDATED = f"{layout.WEIGHTS}/.jobs"
NEEDRESTART = "/etc/needrestart/conf.d/rigup.conf"
NOT_RIGUP = """# Written by rigup, which restarts its services itself, after requests in flight have ended
$nrconf{override_rc}{qr(^rigup-)} = 0;
"""
PACKAGES = ("ca-certificates", "curl", "python3")
PROGRAMS = (
    "ask.py",
    "drain.py",
    "http_reader.py",
    "listeners.py",
    "unprivileged.py",
    "build_environment.py",
    "build_source.py",
    "check_build.py",
    "compile_kernels.py",
    "curl_transfers.py",
    "pull_image.py",
    "fetch_weights.py",
    "hub_access.py",
    "unit_status.py",
    "weights_folder.py",
)


@deploy("base")
def base(packages: tuple[str, ...], programs: tuple[str, ...] = ()) -> None:
    """Install the packages, the worker user, rigup's folders, and the programs that run on the host.

    packages, programs: additions to those that every host gets.
    """
    debian_packages({*PACKAGES, *packages})
    automatic = "needrestart" in host.get_fact(DebPackages)
    text_files(name="needrestart leaves rigup's services alone", files={NEEDRESTART: NOT_RIGUP if automatic else ""})
    system_user(
        name=f"user {layout.WORKER_USER}",
        user=layout.WORKER_USER,
        description="rigup worker, compiles and downloads",
        home="/var/lib/rigup",
    )
    root_files.folders(name="rigup's folders", paths=layout.ROOTS, closed=(layout.CONFIGURATION,), absent=(OUTDATED,))
    sources = tuple(program_file(program) for program in (*PROGRAMS, *programs))
    root_files.programs(name="rigup's programs", folder=layout.PROGRAMS, sources=sources)
