"""Secrets on a host: written over standard input into a file for its reader alone; compared by hash."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from typing import Any

from pyinfra import host
from pyinfra.api import FunctionCommand, operation
from pyinfra.facts.files import File, Sha256File

from rigup.operations import remote
from rigup.operations.progress import Progress, report
from rigup.operations.steps import step

_MAKE = (
    "umask 077; python3 -c 'import secrets; print(secrets.token_urlsafe(32))' > \"$1.new\"; "
    'mv -f "$1.new" "$1"; cat "$1"'
)


@operation()
def secret_file(path: str, value: str | None, group: str = "root") -> Generator[FunctionCommand, None, None]:
    """Have a secret in a file with mode 0600 (0640 for a group other than root).

    + path: where
    + value: the secret; None keeps what is there, or has the host make one, which is shown once
    + group: who may read it besides root
    """
    mode = "600" if group == "root" else "640"
    there = host.get_fact(File, path=path)
    right_mode = bool(there) and str(there["mode"]) == mode and there["group"] == group
    if right_mode and (value is None or host.get_fact(Sha256File, path=path) == _digest(value)):
        host.noop(f"{path} is as wanted")
        return
    yield step(_write, path, value, mode, group, bool(there))


def _write(host: Any, path: str, value: str | None, mode: str, group: str, there: bool) -> None:
    remote.script(host, 'install -d -m 755 "$(dirname "$1")"', path)
    if value is not None:
        remote.write_file(host, path, value, mode)
    elif not there:
        made = remote.script(host, _MAKE, path).strip()
        report(Progress(host.name, "api key", text=f"made for this service, shown this once: {made}"))
    remote.script(host, 'chgrp "$2" "$1"; chmod "$3" "$1"', path, group, mode)


def _digest(value: str) -> str:
    # what `remote.write_file` leaves: standard input ends with a newline
    return hashlib.sha256(f"{value}\n".encode()).hexdigest()
