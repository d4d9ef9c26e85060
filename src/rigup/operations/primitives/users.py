"""A system user, by systemd-sysusers: pyinfra's server.user reads every user of the host to add one."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import host
from pyinfra.api import FactBase, QuoteString, StringCommand, operation


class UserExists(FactBase[bool]):
    """Whether the host knows a user of this name."""

    default = bool

    def command(self, user: str) -> StringCommand:
        return StringCommand("getent", "passwd", QuoteString(user), "||", "true")

    def process(self, output: list[str]) -> bool:
        return any(line.strip() for line in output)


@operation()
def system_user(user: str, description: str, home: str) -> Generator[StringCommand, None, None]:
    """Ensures that a system user without login exists.

    + user: its name
    + description: its purpose
    + home: its home folder, which is not created
    """
    if host.get_fact(UserExists, user=user):
        host.noop(f"user {user} exists")
        return
    line = f'u {user} - "{description}" {home} /usr/sbin/nologin'
    yield StringCommand("systemd-sysusers", "--inline", QuoteString(line))
