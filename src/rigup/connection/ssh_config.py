"""What the inventory and the user's ssh_config say about how to reach a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paramiko import SSHException

from rigup.connection.pyinfra_internals import looked_up
from rigup.errors import InputError
from rigup.regular_files import user_path


def connection_data(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """The inventory's data with what the name says ("ada@gpu1.lan").

    Raises InputError when the ssh_config that is named does not exist.
    """
    user, _, hostname = name.rpartition("@")
    said = {"ssh_hostname": hostname, "ssh_user": user} if user else {}
    merged = {**said, **data}
    if file := merged.get("ssh_config_file"):
        merged["ssh_config_file"] = str(user_path(str(file), f"{name}: ssh_config_file"))
        if not Path(merged["ssh_config_file"]).is_file():
            raise InputError(
                f"{name}: ssh_config_file: {file} does not exist", "name an OpenSSH client configuration file"
            )
    return merged


def ssh_config(file: str | None, hostname: str) -> dict[str, str]:
    """What ssh_config says about a host, keys in lower case."""
    try:
        return dict(looked_up(file, hostname))
    except (OSError, ValueError, SSHException) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{file or '~/.ssh/config'}: {reason}", f"check that OpenSSH can read it: ssh -G {hostname}"
        ) from None
