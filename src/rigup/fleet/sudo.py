"""How to be root on a host, found out before anything else is done there."""

from __future__ import annotations

from typing import Any

from pyinfra.api.command import StringCommand

from rigup.errors import Unreachable

ANSWER_SECONDS = 30

_WHO = r"""
echo "$(id -u) $(id -un)"
command -v sudo >/dev/null || echo no-sudo
sudo -k -n true 2>/dev/null && echo sudo-is-free; true
"""


def settle_sudo(host: Any, password: str | None) -> None:
    """Finds out how to be root there: already, by sudo without a password, or by sudo with the one that was given.

    Raises Unreachable when none of them works.
    """
    password = password or getattr(host.data, "_sudo_password", None)
    host.data._sudo_password = None  # pyinfra would put it where ps shows it
    _, output = host.run_shell_command(StringCommand(_WHO), _timeout=ANSWER_SECONDS)
    identity, user = (*output.stdout.split()[:2], "", "")[:2]
    lines = output.stdout_lines
    if identity == "0":
        return
    if "no-sudo" in lines:
        raise Unreachable(f"{host.name}: {user} is not root and there is no sudo", "log in as root, or install sudo")
    host.data._sudo = True
    if "sudo-is-free" in lines:
        return
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
