"""What the inventory and the user's ssh_config say about how to reach a host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from paramiko import SSHException

from rigup.connection.pyinfra_internals import looked_up
from rigup.errors import InputError
from rigup.regular_files import is_absent, refuse_irregular, user_path


def connection_data(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """The inventory's data with what the name says ("ada@gpu1.lan").

    Raises InputError when the ssh_config that is named does not exist, the one that counts cannot be read, or a file
    of keys is a pipe or a device.
    """
    user, _, hostname = name.rpartition("@")
    said = {"ssh_hostname": hostname, "ssh_user": user} if user else {}
    merged = {**said, **data}
    if file := merged.get("ssh_config_file"):
        merged["ssh_config_file"] = str(user_path(str(file), f"{name}: ssh_config_file"))
        if is_absent(Path(merged["ssh_config_file"])):
            raise InputError(
                f"{name}: ssh_config_file: {file} does not exist", "name an OpenSSH client configuration file"
            )
    for file in _key_files(merged, ssh_config(merged.get("ssh_config_file"), merged.get("ssh_hostname") or hostname)):
        refuse_irregular(Path(os.path.expanduser(file)), f"{name}: {file}")
    return merged


def _key_files(data: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """The files of known hosts and of private keys that SSH will read."""
    known = data.get("ssh_known_hosts_file")
    hosts = [str(known)] if known else config.get("userknownhostsfile", "~/.ssh/known_hosts").split()
    keys = [str(data["ssh_key"])] if data.get("ssh_key") else config.get("identityfile", [])
    return [*hosts, *keys]


def ssh_config(file: str | None, hostname: str) -> dict[str, Any]:
    """What ssh_config says about a host, keys in lower case. Raises InputError when it cannot be read."""
    path = os.path.expanduser(file or "~/.ssh/config")
    refuse_irregular(Path(path), path)
    try:
        return dict(looked_up(file, hostname))
    except (OSError, ValueError, SSHException) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{file or '~/.ssh/config'}: {reason}", f"check that OpenSSH can read it: ssh -G {hostname}"
        ) from None
