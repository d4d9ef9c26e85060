"""Asking and telling a host from inside an operation: words in, text out, with a time limit on everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gevent
from paramiko import SSHException
from pyinfra.api.command import QuoteString, StringCommand

from rigup.errors import HostFailed

SILENT = "no output"
IN_ENGLISH = {"LC_ALL": "C"}  # what is read from programs' output is translated on hosts with another language
LOST = (OSError, EOFError, SSHException, gevent.Timeout)


@dataclass(frozen=True)
class Output:
    """What a command left behind. `ok` is exit status 0."""

    ok: bool
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """The line that most likely says what went wrong."""
        lines = [line for line in (self.stderr + "\n" + self.stdout).splitlines() if line.strip()]
        return lines[-1].strip() if lines else SILENT


def ask(host: Any, *words: str, stdin: str | None = None, timeout: float = 60) -> Output:
    """Runs one command, each word quoted, as root (through sudo where the user is not root).

    Raises one of LOST when the connection is gone or nothing came back within `timeout` seconds.
    """
    command = StringCommand(*(QuoteString(word) for word in words))
    arguments = {"_sudo": _sudo(host), "_env": IN_ENGLISH} | ({"_stdin": stdin} if stdin is not None else {})
    with gevent.Timeout(timeout):
        ok, output = host.run_shell_command(command, **arguments)
    return Output(ok, output.stdout, output.stderr)


def tell(host: Any, *words: str, stdin: str | None = None, timeout: float = 60) -> str:
    """Runs one command that must succeed and returns its output. Raises HostFailed with the command's last words."""
    output = ask(host, *words, stdin=stdin, timeout=timeout)
    if not output.ok:
        raise HostFailed(f"{host.name}: {' '.join(words[:3])}: {output.last_line}")
    return output.stdout


def script(
    host: Any, text: str, *arguments: str, doing: str = "", stdin: str | None = None, timeout: float = 60
) -> str:
    """Runs a few lines of sh with `set -eu`, arguments in $1, $2, ... Raises HostFailed with its last words.

    doing: what it was about, for that message; without it the arguments stand for it where there are no words.
    """
    output = ask(host, "sh", "-c", "set -eu\n" + text, "rigup", *arguments, stdin=stdin, timeout=timeout)
    if not output.ok:
        about = doing or (" ".join(arguments[:3]) if output.last_line == SILENT else "")
        raise HostFailed(": ".join(filter(None, (host.name, about, output.last_line))))
    return output.stdout


def write_file(host: Any, path: str, text: str, mode: str = "644") -> None:
    """Writes a whole file or nothing: over standard input (never argv, never a world-readable copy), then renamed."""
    shell = 'umask 077; cat > "$1.new"; chmod "$2" "$1.new"; mv -f "$1.new" "$1"'
    script(host, shell, path, mode, doing=f"writing {path}", stdin=text)


def reconnect(host: Any) -> bool:
    """One try to reach a host again after its connection was lost."""
    try:
        host.connected = False
        host.connector.disconnect()
        with gevent.Timeout(15):
            host.connect(show_errors=False, raise_exceptions=True)
    except Exception:
        return False
    except gevent.Timeout:
        return False
    return True


def _sudo(host: Any) -> bool:
    return bool(getattr(host.data, "_sudo", None) or host.state.config.SUDO)
