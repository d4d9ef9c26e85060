"""Prerequisites of this machine for running a lab. One message names everything that is missing."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from rigup.errors import MissingTool
from rigup.lab.base import Log
from rigup.lab.cgroup import hierarchy
from rigup.lab.process import environment, run

PACKAGE_OF = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "tc": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}
LEAST_KERNEL = (5, 19)
"""The first version in which overlayfs takes layers with mapped ids; 5.14 has cgroup.kill."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# In each machine systemd, dbus and logind need instances of inotify. All of these count for this machine's root, whose
# limit is 128 on most kernels; beyond it a machine does not boot.
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
INSTANCES_OF_A_MACHINE = 10  # 7 on Debian 12, and installed programs may need more
OTHER_INSTANCES = 100


def check() -> None:
    """Raises MissingTool with everything that is missing and how to install it."""
    if sys.platform != "linux":
        raise MissingTool(f"the lab requires Linux, not {sys.platform}", "run the lab on a Linux machine")
    missing = [tool for tool in PACKAGE_OF if shutil.which(tool, path=environment()["PATH"]) is None]
    packages = {PACKAGE_OF[tool] for tool in missing}
    if not KEYRING.exists():
        missing.append(str(KEYRING))
        packages.add("debian-archive-keyring")
    install = f"apt-get install --no-install-recommends {' '.join(sorted(packages))}"
    if missing:
        root = " and root" if os.geteuid() else ""
        raise MissingTool(f"the lab requires {', '.join(missing)}{root}", install)
    if os.geteuid():
        raise MissingTool("the lab requires root for network namespaces and mounts", "run sudo rigup lab ...")
    hierarchy()
    release = os.uname().release
    if tuple(map(int, re.findall(r"\d+", release)[:2])) < LEAST_KERNEL:
        raise MissingTool(f"the lab requires Linux {'.'.join(map(str, LEAST_KERNEL))} or later, not {release}")
    if run(["unshare", "--user", "--mount", "--net", "true"], check=False).returncode:
        raise MissingTool(
            "the lab is not allowed to create namespaces here", "run it outside the container, or in a privileged one"
        )


def make_room(machines: int, log: Log) -> None:
    """Raises the limit of inotify instances if it is too low for these machines, and reports it.

    The new limit holds until the next boot of this machine. Raises MissingTool if the limit cannot be raised.
    """
    wanted, limit = machines * INSTANCES_OF_A_MACHINE + OTHER_INSTANCES, int(INSTANCES.read_text())
    if limit < wanted:
        try:
            INSTANCES.write_text(f"{wanted}\n")
        except OSError as error:
            message = f"{machines} machines require fs.inotify.max_user_instances = {wanted}, but it is {limit}"
            hint = f"run sysctl -w fs.inotify.max_user_instances={wanted} on the machine that runs the lab"
            raise MissingTool(f"{message}: {error.strerror}", hint) from None
        log(f"raised fs.inotify.max_user_instances from {limit} to {wanted} for {machines} machines")
