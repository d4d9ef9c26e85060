"""Secrets on a host: written over standard input into a file that only its reader can read; compared by hash."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Generator

from pyinfra import host
from pyinfra.api import FunctionCommand, QuoteString, StringCommand, operation
from pyinfra.facts.files import File, Sha256File

from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step

KEY_BYTES = 32
# for a file made by the user: fix owner and mode, keep the content
_PROTECT = f'{remote.ROOTS_OWN}roots_own "$(dirname "$1")"; chown -h "root:$2" "$1"; [ -L "$1" ] || chmod "$3" "$1"'


@operation()
def secret_file(path: str, value: str | None, group: str = "root") -> Generator[FunctionCommand, None, None]:
    """Ensures that a file contains a secret, with mode 0600 (0640 for a group other than root).

    + path: the file
    + value: the secret; None keeps an existing one, or creates one and shows it once on a terminal
    + group: may read the file in addition to root
    """
    mode = "600" if group == "root" else "640"
    there = host.get_fact(File, path=path)
    right_mode = bool(there) and (str(there["mode"]), there["user"], there["group"]) == (mode, "root", group)
    if right_mode and (value is None or host.get_fact(Sha256File, path=path) == _digest(value)):
        host.noop(f"{path} is up to date")
        return
    yield step(_write, path, value, mode, group, bool(there))


@operation()
def no_secret_file(path: str) -> Generator[StringCommand, None, None]:
    """Ensures that a secret file does not exist.

    + path: the file
    """
    if host.get_fact(File, path=path) is None:
        host.noop(f"{path} does not exist")
        return
    yield StringCommand("rm", "-f", "--", QuoteString(path))


def _write(host: Host, path: str, value: str | None, mode: str, group: str, there: bool) -> None:
    remote.make_folders(host, path.rpartition("/")[0])
    if value is None and there:
        remote.script(host, _PROTECT, path, group, mode, doing=f"protecting {path}")
        return
    secret = value if value is not None else secrets.token_urlsafe(KEY_BYTES)
    remote.write_file(host, path, secret, mode, group)
    if value is None:
        report(Progress(host.name, "api key", text=f"created for this service, in {path} on the host", secret=secret))


def _digest(value: str) -> str:
    # as `remote.write_file` writes it: standard input ends with a newline
    return hashlib.sha256(f"{value}\n".encode()).hexdigest()
