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

from rigup.errors import HostFailed
from rigup.lab import ids
from rigup.lab.base import image
from rigup.lab.cgroup import Cgroup
from rigup.lab.folder import LabFolder, LabRecord, make_folder
from rigup.lab.gpus import setup
from rigup.lab.machine import OFF, POWER_BUTTON
from rigup.lab.network import addresses, network
from rigup.lab.process import environment, run

REBOOT = 133
NETWORK_UNIT = "lab-network.service"


def main() -> None:
    """Runs one machine from its first boot to the end of the process."""
    name, index = sys.argv[1], int(sys.argv[2])
    record = LabFolder(name).existing()
    folder = LabFolder(name).machine(index)
    signal.pthread_sigmask(signal.SIG_BLOCK, {POWER_BUTTON})
    (folder / OFF).unlink(missing_ok=True)
    root = make_disk(record, index, folder)
    hide_this_machine()
    while True:
        code = REBOOT
        while code == REBOOT:
            code = boot(record, index, folder, root)
        print(f"{time.strftime('%F %T')} off ({code})", flush=True)
        (folder / OFF).touch()
        signal.sigwait({POWER_BUTTON})
        (folder / OFF).unlink()


def make_disk(record: LabRecord, index: int, folder: Path) -> Path:
    """Mounts the machine's disk, of limited size, over the image, and sets it up; returns the root of its files.

    They show the ids of the machine's user namespace: the image by a mapped mount, and what is written to it here is
    handed over.
    """
    disk, root, first = folder / "disk", folder / "root", ids.root_of(record, index)
    disk.mkdir(exist_ok=True)
    root.mkdir(exist_ok=True)
    run(["mount", "-t", "tmpfs", "-o", f"size={record.disk},mode=755", "lab-disk", disk])
    for part in ("upper", "work", "image"):
        (disk / part).mkdir()
    mount_over(image(record.base), disk, root)
    set_up(record, index, folder, root)
    setup.fit_out(folder, root)
    run(["umount", root])
    ids.hand_over(disk / "upper", first)
    ids.mount_mapped(image(record.base), disk / "image", first)
    mount_over(disk / "image", disk, root)
    return root


def mount_over(lower: Path, disk: Path, root: Path) -> None:
    """Mounts a machine's root: `lower` with what is on its disk."""
    layers = f"lowerdir={lower},upperdir={disk / 'upper'},workdir={disk / 'work'}"
    run(["mount", "-t", "overlay", "-o", layers, "lab-root", root])


def set_up(record: LabRecord, index: int, folder: Path, root: Path) -> None:
    """Gives a new machine its identity: name, host key, authorised keys, and package sources."""
    number, name = record.number, f"{record.name}{index}"
    hub = addresses.hub_address(number)
    proxy = f"http://{hub}:{addresses.PACKAGE_PORT}"
    # Includes all possible machines, so that running machines know the ones that are added later.
    every = range(1, addresses.MOST_MACHINES + 1)
    others = [f"{addresses.machine_address(number, other)} {record.name}{other}" for other in every]
    hosts = ["127.0.0.1 localhost", f"{hub} hub", f"{addresses.cdn_address(number)} cdn", *others]
    address = addresses.machine_address(number, index)
    units = root / "etc/systemd/system"
    (units / NETWORK_UNIT).write_text(network_unit(address))
    (units / "sysinit.target.wants" / NETWORK_UNIT).symlink_to(f"../{NETWORK_UNIT}")
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


def network_unit(address: str) -> str:
    """A unit that sets up the network of a machine before anything else may use it."""
    return f"""[Unit]
Description=The network of the lab
DefaultDependencies=no
Before=network-pre.target sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=ip address add {address}/24 dev {network.CARD}
ExecStart=ip link set {network.CARD} up
"""


def hide_this_machine() -> None:
    """Shows nspawn an empty /run/systemd: its files are neither shared with other users of it nor left behind."""
    make_folder(Path("/run/systemd"))
    run(["mount", "-t", "tmpfs", "-o", "mode=755", "lab-run", "/run/systemd"])


def show_card(beside_card: list[str]) -> None:
    """Shows nspawn a /sys with the machine's card, and a complete cgroup v2 hierarchy, even if v1 is here, too.

    The /sys is read-only, by which nspawn knows that no udev would have to tell it of the card.
    """
    run(["umount", "--recursive", "/sys"])
    run([*beside_card, "mount", "-t", "sysfs", "-o", "ro", "sysfs", "/sys"])
    run(["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"])


def boot(record: LabRecord, index: int, folder: Path, root: Path) -> int:
    """One boot, from power on to reboot or power off; returns nspawn's exit code."""
    print(f"{time.strftime('%F %T')} boot", flush=True)
    name = addresses.machine_namespace(record.number, index)
    beside_card = ["nsenter", f"--net={network.NAMESPACES / name}", "--"]
    try:
        network.insert_card(record.number, index, network.read_cable(folder))
        show_card(beside_card)
    except HostFailed as error:  # its power is being cut
        print(error.message, flush=True)
        return 1
    cgroup = Cgroup(record.number, index)
    cgroup.kill()
    cgroup.remove()
    cgroup.make()
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
        f"--machine={name}",
        f"--hostname={record.name}{index}",
        f"--directory={root}",
        # Its root is root only over what is its own: in a user namespace the kernel refuses it this machine's devices
        # and settings. It has a firewall, too, because its network namespace belongs to its user namespace.
        f"--private-users={ids.root_of(record, index)}:{ids.COUNT}",
        "--private-network",
        f"--network-interface={network.CARD}",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "--console=pipe",
        *(f"--tmpfs={empty}:mode=755,size=1m" for empty in setup.folders(folder)),
    ]

    def enter() -> None:
        cgroup.enter()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {POWER_BUTTON})

    done = subprocess.run(
        [*mortal, *beside_card, *clocks, *machine],
        stdin=subprocess.DEVNULL,
        env={**environment(), "SYSTEMD_NSPAWN_TMPFS_TMP": "0"},  # leaves mounting /tmp to Debian
        preexec_fn=enter,
    )
    return done.returncode


if __name__ == "__main__":
    main()
