"""How to be root on a host, found out before anything else is done there."""

from __future__ import annotations

from pyinfra.api.command import StringCommand

from rigup.connection.handshake import Handshake, shake_hands
from rigup.errors import HostUnreachable
from rigup.host import Host

ANSWER_SECONDS = 30
# The last one is sudo-rs's, which Ubuntu has had since 25.10.
_NOT_FOR_THIS_USER = ("not in the sudoers", "not allowed", "I'm afraid I can't do that")


def shake_hands_as_root(host: Host, password: str | None) -> Handshake:
    """The handshake as root: already, by sudo without a password, or by sudo with the one given.

    Raises HostUnreachable when none of them works.
    """
    password = password or getattr(host.data, "_sudo_password", None)
    host.data._sudo_password = None  # pyinfra would put it where ps shows it
    password = password or host.connector.sudo_password  # of an earlier handshake
    handshake = shake_hands(host)
    if not handshake.uid:
        raise HostUnreachable(
            f"{host.name}: could not determine the remote user: its login shell does not run commands",
            f"check its output: ssh {host.name} id",
        )
    if handshake.uid == "0":
        return handshake
    if handshake.sudo == "none":
        raise HostUnreachable(
            f"{host.name}: {handshake.user} is not root and sudo is not installed", "log in as root, or install sudo"
        )
    if handshake.sudo == "tty":
        raise _wants_terminal(host, handshake.user)
    host.data._sudo = True
    if handshake.sudo == "free":
        return handshake
    _try_password(host, handshake.user, password)
    return shake_hands(host, _sudo=True)


def _try_password(host: Host, user: str, password: str | None) -> None:
    if password is None:
        raise HostUnreachable(
            f"{host.name}: sudo needs a password for {user}", "pass --ask-sudo-password, or log in as root"
        )
    host.connector.sudo_password = password
    try:
        works, output = host.run_shell_command(StringCommand("true"), _sudo=True, _timeout=ANSWER_SECONDS)
    except TimeoutError:
        raise HostUnreachable(
            f"{host.name}: sudo asks {user} for something other than a password",
            f"see what it asks for: ssh -t {host.name} sudo -k true",
        ) from None
    if "have a tty" in output.stderr:
        raise _wants_terminal(host, user)
    if any(words in output.stderr for words in _NOT_FOR_THIS_USER):
        raise HostUnreachable(f"{host.name}: {user} may not use sudo", "log in as root or as a user with sudo rights")
    if not works:
        raise HostUnreachable(f"{host.name}: sudo rejects the password for {user}", "check the password")


def _wants_terminal(host: Host, user: str) -> HostUnreachable:
    return HostUnreachable(
        f"{host.name}: sudo works only on a terminal (requiretty)",
        f"add this line to its sudoers with visudo: Defaults:{user} !requiretty",
    )
