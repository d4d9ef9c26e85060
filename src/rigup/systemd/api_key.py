"""The API key: which services need one, and where a process finds it. It is never in a plan, argv or unit."""

from __future__ import annotations

import ipaddress

from rigup.service import Service

# systemd puts the credential into a folder that only the service can read, and names the folder in this variable.
# Units need systemd 247; the specifier for the folder is newer than the 249 of Ubuntu 22.04.
CREDENTIAL_NAME = "api-key"
CREDENTIAL = f"${{CREDENTIALS_DIRECTORY}}/{CREDENTIAL_NAME}"


def wants_key(service: Service) -> bool:
    """Whether requests need a key: the user named a key file, or the service listens beyond loopback."""
    return service.api_key_file is not None or not is_loopback(service.listen)


def is_loopback(address: str) -> bool:
    """Whether an address is reachable from this machine only."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
