"""Holds one machine while it exists: `python -m rigup.lab.holder LAB INDEX`, in its own mount namespace.

The machine's disk is an overlay of the image, mounted only in this process's namespace: it ends with this process. A
boot that ends with "reboot" is followed by the next one; after any other end the machine is off until SIGUSR1 arrives.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rigup.lab.base import image
from rigup.lab.cgroup import Cgroup
from rigup.lab.folder import LabFolder, LabRecord, make_folder
from rigup.lab.gpus import setup
from rigup.lab.machine import OFF, POWER_BUTTON
from rigup.lab.network import addresses, network
from rigup.lab.process import environment, run

REBOOT = 133


def main() -> None:
    """Runs one machine from its first boot to the end of the process."""
    name, index = sys.argv[1], int(sys.argv[2])
    record = LabFolder(name).existing()
    folder = LabFolder(name).machine(index)
    signal.pthread_sigmask(signal.SIG_BLOCK, {POWER_BUTTON})
    (folder / OFF).unlink(missing_ok=True)
    root = mount_disk(record, folder)
    set_up(record, index, folder, root)
    setup.fit_out(folder, root)
    hide_this_machine()
    while True:
        code = REBOOT
        while code == REBOOT:
            code = boot(record, index, root)
        print(f"{time.strftime('%F %T')} off ({code})", flush=True)
        (folder / OFF).touch()
        signal.sigwait({POWER_BUTTON})
        (folder / OFF).unlink()


def mount_disk(record: LabRecord, folder: Path) -> Path:
    """Mounts the machine's disk, of limited size, over the image; returns the root of the file system."""
    disk, root = folder / "disk", folder / "root"
    disk.mkdir(exist_ok=True)
    root.mkdir(exist_ok=True)
    run(["mount", "-t", "tmpfs", "-o", f"size={record.disk},mode=755", "lab-disk", disk])
    upper, work = disk / "upper", disk / "work"
    upper.mkdir()
    work.mkdir()
    layers = f"lowerdir={image(record.base)},upperdir={upper},workdir={work}"
    run(["mount", "-t", "overlay", "-o", layers, "lab-root", root])
    return root


def set_up(record: LabRecord, index: int, folder: Path, root: Path) -> None:
    """Gives a new machine its identity: name, host key, authorised keys, and package sources."""
    number, name = record.number, f"{record.name}{index}"
    hub = addresses.hub_address(number)
    proxy = f"http://{hub}:{addresses.PACKAGE_PORT}"
    # Includes all possible machines, so that running machines know the ones that are added later.
    every = range(1, addresses.MOST_MACHINES + 1)
    others = [f"{addresses.machine_address(number, other)} {record.name}{other}" for other in every]
    hosts = ["127.0.0.1 localhost", f"{hub} hub", f"{addresses.cdn_address(number)} cdn", *others]
    (root / "etc/hostname").write_text(f"{name}\n")
    (root / "etc/hosts").write_text("".join(f"{line}\n" for line in hosts))
    (root / "etc/apt/apt.conf.d/95lab").write_text(f'Acquire::http::Proxy "{proxy}";\n')
    index_url = f"[global]\nindex-url = {proxy}/pypi/simple/\ntrusted-host = {hub}\n"
    (root / "etc/pip.conf").write_text(index_url)
    for file, mode in (("ssh_host_ed25519_key", 0o600), ("ssh_host_ed25519_key.pub", 0o644)):
        (root / "etc/ssh" / file).write_bytes((folder / file).read_bytes())
        (root / "etc/ssh" / file).chmod(mode)
    key = LabFolder(record.name).key.with_suffix(".pub").read_text()
    for home in ("root", "home/ops", "home/opspw"):
        owner = (root / home).stat()
        ssh = root / home / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        (ssh / "authorized_keys").write_text(key)
        for path in (ssh, ssh / "authorized_keys"):
            os.chown(path, owner.st_uid, owner.st_gid)


def hide_this_machine() -> None:
    """Shows nspawn a complete cgroup v2 hierarchy, even if this machine mixes it with v1, and an empty /run/systemd.

    So nspawn's files in /run/systemd are neither shared with other users of nspawn nor left behind.
    """
    make_folder(Path("/run/systemd"))
    run(["mount", "-t", "tmpfs", "-o", "mode=755", "lab-run", "/run/systemd"])
    run(["umount", "--recursive", "/sys/fs/cgroup"])
    run(["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"])


def boot(record: LabRecord, index: int, root: Path) -> int:
    """One boot, from power on to reboot or power off; returns nspawn's exit code."""
    cgroup = Cgroup(record.number, index)
    cgroup.kill()
    cgroup.remove()
    cgroup.make()
    print(f"{time.strftime('%F %T')} boot", flush=True)
    # Its own clocks start from zero: pyinfra detects a reboot by /proc/uptime, which is otherwise this machine's.
    uptime = int(float(Path("/proc/uptime").read_text().split()[0]))
    mortal = ["setpriv", "--pdeathsig", "KILL"]  # the machine ends with its holder, which owns its disk
    clocks = ["unshare", "--time", f"--boottime=-{uptime}", f"--monotonic=-{uptime}", "--fork", "--kill-child", "--"]
    machine = [
        "systemd-nspawn",
        "--boot",
        "--quiet",
        "--register=no",
        "--keep-unit",
        f"--machine={addresses.machine_namespace(record.number, index)}",
        f"--hostname={record.name}{index}",
        f"--directory={root}",
        f"--network-namespace-path={network.NAMESPACES / addresses.machine_namespace(record.number, index)}",
        "--capability=CAP_NET_ADMIN",  # for its own network only: a real machine's root has a firewall
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "--console=pipe",
    ]
    # Makes net.* settings writable despite the given network namespace, and leaves mounting /tmp to Debian.
    options = {"SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network", "SYSTEMD_NSPAWN_TMPFS_TMP": "0"}

    def enter() -> None:
        cgroup.enter()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {POWER_BUTTON})

    done = subprocess.run(
        [*mortal, *clocks, *machine], stdin=subprocess.DEVNULL, env={**environment(), **options}, preexec_fn=enter
    )
    return done.returncode


if __name__ == "__main__":
    main()
