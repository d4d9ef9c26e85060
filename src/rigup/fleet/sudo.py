"""How to be root on a host, found out before anything else is done there."""

from __future__ import annotations

from typing import Any

from pyinfra.api.command import StringCommand

from rigup.errors import Unreachable
from rigup.fleet.greeting import Greeting, greet

ANSWER_SECONDS = 30


def greet_as_root(host: Any, password: str | None, services: bool = False) -> Greeting:
    """The greeting, from somebody who is root: already, by sudo without a password, or by sudo with the one given.

    services: as for `greet`. Raises Unreachable when none of them works.
    """
    password = password or getattr(host.data, "_sudo_password", None)
    host.data._sudo_password = None  # pyinfra would put it where ps shows it
    password = password or host.connector.sudo_password  # of an earlier greeting
    greeting = greet(host, services)
    if not greeting.uid:
        raise Unreachable(f"{host.name}: it does not say who we are there", "can you log in there and run a command?")
    if greeting.uid == "0":
        return greeting
    if greeting.sudo == "none":
        raise Unreachable(
            f"{host.name}: {greeting.user} is not root and there is no sudo", "log in as root, or install sudo"
        )
    host.data._sudo = True
    if greeting.is_root:
        return greeting
    _try_password(host, greeting.user, password)
    return greet(host, services, _sudo=True)


def _try_password(host: Any, user: str, password: str | None) -> None:
    if password is None:
        raise Unreachable(
            f"{host.name}: sudo wants a password for {user}", "give it with --ask-sudo-password, or log in as root"
        )
    host.connector.sudo_password = password
    works, output = host.run_shell_command(StringCommand("true"), _sudo=True, _timeout=ANSWER_SECONDS)
    if "not in the sudoers" in output.stderr or "not allowed" in output.stderr:
        raise Unreachable(f"{host.name}: {user} may not use sudo", "log in as a user who may, or as root")
    if not works:
        raise Unreachable(f"{host.name}: sudo does not take that password for {user}", "is it the right one?")
