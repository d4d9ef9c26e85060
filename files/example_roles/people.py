"""Accounts for people: `people = {"ada": ["ssh-ed25519 AAAA..."]}` in group_data."""

from pyinfra.operations import server

from rigup.api import RoleHost, before


@before
def people(host: RoleHost) -> None:
    """Each person has an account, with these SSH keys alone."""
    for name, keys in host.data.get("people", {}).items():
        server.user(name=f"account of {name}", user=name, public_keys=keys, delete_keys=True)
