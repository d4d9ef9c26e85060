"""A disk for weights: `data_disk = "/dev/disk/by-label/weights"` in group_data."""

from pyinfra.operations import files, server

from rigup.api import RoleHost, before

FOLDER = "/var/lib/rigup"


@before
def data_disk(host: RoleHost) -> None:
    """The disk, which has a file system, is mounted where rigup keeps weights, now and after each boot."""
    if disk := host.data.get("data_disk"):
        files.directory(name=f"folder {FOLDER}", path=FOLDER, mode="755")
        files.line(name=f"{FOLDER} in /etc/fstab", path="/etc/fstab", line=f"{disk} {FOLDER} ext4 defaults,nofail 0 2")
        server.mount(name=f"mount {FOLDER}", path=FOLDER, device=disk)
