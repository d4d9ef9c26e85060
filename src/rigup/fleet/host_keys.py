"""Host keys are checked, those of jump hosts too, and nobody is asked about one in the middle of a run.

pyinfra's client is mended for that in three places; its own default, accept-new, would override the user's ssh_config.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyinfra.connectors import ssh as ssh_connector
from pyinfra.connectors.sshuserclient import client as ssh_client


class AcceptNew(ssh_client.AcceptNewPolicy):
    """Records an unknown host key, as pyinfra does, and holds the host to it for the rest of this run too."""

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        """Takes the key, on disk (whose folder need not be there yet) and in memory."""
        Path(client._host_keys_filename).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().missing_host_key(client, hostname, key)
        client._host_keys.add(hostname, key.get_name(), key)


def keep_pyinfra_from_asking() -> None:
    """Nothing is asked on the terminal in the middle of a run.

    pyinfra asks about an unknown jump host: rigup refuses it like any other host. It asks for a password wherever sudo
    wants one: rigup has settled that before (`greet_as_root`).
    """
    policies = {"accept-new": AcceptNew, "no": ssh_client.WarningPolicy, "off": ssh_client.WarningPolicy}
    ssh_client.get_missing_host_key_policy = lambda value: policies.get(value, ssh_client.StrictPolicy)()
    ssh_connector.execute_command_with_sudo_retry = lambda host, arguments, execute: execute()


def name_jump_hosts_as_ssh_does() -> None:
    """pyinfra hands on a jump host's Port as text, and paramiko then looks for "[host]:22" in known_hosts."""
    original = ssh_client.SSHClient.derive_shorthand

    def derive_shorthand(ssh_config: Any, hop: str) -> tuple[str, dict[str, Any]]:
        hostname, found = original(ssh_config, hop)
        return hostname, {**found, "port": int(found["port"])}

    ssh_client.SSHClient.derive_shorthand = staticmethod(derive_shorthand)
