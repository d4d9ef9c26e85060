"""The API key: when a service wants one, and where its process finds it. The key is never in a plan, argv or unit."""

from __future__ import annotations

import ipaddress

from rigup.service import Service

# systemd puts the credential into a folder that only the service can read, and names that folder in this variable
# (systemd 247 and later; the specifier for it came later than Ubuntu 22.04's 249).
CREDENTIAL_NAME = "api-key"
CREDENTIAL = f"${{CREDENTIALS_DIRECTORY}}/{CREDENTIAL_NAME}"


def wants_key(service: Service) -> bool:
    """Whether requests must carry a key: the user named a key file, or the service listens beyond this machine."""
    return service.api_key_file is not None or not is_loopback(service.listen)


def is_loopback(address: str) -> bool:
    """Whether an address is reachable from this machine only."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
