"""Runs commands on a host from inside an operation: argv in, text out, always with a time limit."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import gevent
from gevent.lock import RLock
from paramiko import SSHException
from pyinfra.api.command import QuoteString, StringCommand

from rigup.errors import HostFailed, RigupError
from rigup.facts.bounds import count
from rigup.host import Host, SessionsInUse, state_of, uses_sudo
from rigup.layout import WORKER_USER

SILENT = "no output"
IN_ENGLISH = {"LC_ALL": "C"}  # hosts with another language would translate programs' output
YOUNG_SECONDS = 20.0
"""The longest that a command which began on the connection before may take to notice its end."""
CONNECTION_ERRORS = (OSError, EOFError, SSHException, gevent.Timeout)

# A fixed umask, whatever umask a login shell has set.
_STRICT = "set -eu; umask 022\n"
FULL = "No space left on device"
_UNWRITABLE = "is not writable"
# As programs end their line: of a file system, and of a folder that `_FOLDERS` looked at.
_READ_ONLY = ("Read-only file system", _UNWRITABLE)
_LOOSE = "can be changed by others than root"
# Fails unless root alone can change the entries of folder $1, and that path: every folder and link on the way belongs
# to root (or the current user), and other users cannot write to it. A sticky folder may only be on the way.
ROOTS_OWN = rf"""
roots_own() {{
  LC_ALL=C namei -l -- "$1" | {{
    me=$(id -un); shared=
    while read -r mode owner group name; do
      case "$mode" in f:) continue ;; [dl]?????????) ;; *) continue ;; esac
      why="$name ($mode $owner $group)"
      [ "$owner" = root ] || [ "$owner" = "$me" ] || {{ shared=$why; break; }}
      shared=
      case "$mode $group" in
        l*) ;;
        d????????[tT]*) shared=$why ;;
        d???????w*) shared=$why; break ;;
        d????w????\ root) ;;
        d????w*) shared=$why; break ;;
      esac
    done
    [ -z "$shared" ] || {{ echo "$1: $shared {_LOOSE}" >&2; return 1; }}
  }}
}}
"""
# $1 path, $2 mode, $3 group or "", $4 command that reads the content from standard input. The file is new and owned by
# root from its first byte; an existing file, or link, is replaced.
_WRITE = (
    ROOTS_OWN
    + """
umask 077; roots_own "$(dirname -- "$1")"
new="$1.new"; rm -f -- "$new"; trap 'rm -f -- "$new"' EXIT
set -C; $4 > "$new"; [ -z "$3" ] || chgrp -- "$3" "$new"; chmod -- "$2" "$new"; sync -- "$new"; mv -fT -- "$new" "$1"
"""
)
# $1 user, $2 group, $3 mode, then folders.
_FOLDERS = (
    ROOTS_OWN
    + f"""
user=$1; group=$2; mode=$3; shift 3
for folder; do
  above=$(dirname -- "$folder")
  near=$above; until [ -e "$near" ] || [ -L "$near" ]; do near=$(dirname -- "$near"); done
  [ -w "$near" ] || [ -d "$folder" ] || {{ echo "$near {_UNWRITABLE}" >&2; exit 1; }}
  roots_own "$near"; install -d -m 755 -- "$above"; roots_own "$above"
  [ ! -L "$folder" ] || roots_own "$folder"
  install -d -m "$mode" -o "$user" -g "$group" -- "$folder"
done
"""
)


class Output(NamedTuple):
    """The result of a command. `ok` is exit status 0."""

    ok: bool
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """The line that most likely names the error."""
        lines = [line for line in (self.stderr + "\n" + self.stdout).splitlines() if line.strip()]
        return lines[-1].strip() if lines else SILENT


def run(host: Host, *words: str, stdin: str | None = None, timeout: float = 60) -> Output:
    """Runs one command, each word quoted, as root (through sudo if the user is not root).

    Waits as long as other steps use all sessions that the host allows. Raises one of CONNECTION_ERRORS when the
    connection is lost or nothing returns within `timeout` seconds.
    """
    command = StringCommand(*(QuoteString(word) for word in words))
    arguments = {"_sudo": uses_sudo(host), "_env": IN_ENGLISH} | ({"_stdin": stdin} if stdin is not None else {})
    while True:
        try:
            with gevent.Timeout(timeout):
                ok, output = host.run_shell_command(command, **arguments)
            return Output(ok, output.stdout, output.stderr)
        except SessionsInUse:
            continue


def check_output(host: Host, *words: str, stdin: str | None = None, timeout: float = 60) -> str:
    """Runs one command that must succeed and returns its output. Raises HostFailed with the output's last line."""
    output = run(host, *words, stdin=stdin, timeout=timeout)
    if not output.ok:
        raise HostFailed(f"{host.name}: {' '.join(words[:3])}: {output.last_line}")
    return output.stdout


def free_bytes(host: Host, folder: str) -> int:
    """The free bytes, for users other than root, in the file system of a folder. Raises HostFailed."""
    output = check_output(host, "df", "--output=avail", "-B1", folder).split()
    try:
        return count(output[-1] if output else "")
    except ValueError as error:
        raise HostFailed(f"{host.name}: df {folder}: {error}") from None


def script(
    host: Host, text: str, *arguments: str, doing: str = "", stdin: str | None = None, timeout: float = 60
) -> str:
    """Runs a few lines of sh with `set -eu` and umask 022, arguments in $1, $2, ...

    Raises HostFailed with the output's last line. doing: the subject of that message; if it is "" and there is no
    output, the message shows the arguments.
    """
    output = run(host, "sh", "-c", _STRICT + text, "rigup", *arguments, stdin=stdin, timeout=timeout)
    if not output.ok:
        about = doing or (" ".join(arguments[:3]) if output.last_line == SILENT else "")
        hint = None
        if output.last_line.endswith(_LOOSE):
            path = output.last_line.partition(":")[0]
            hint = f"on the host: namei -l {path}; then chown root:root and chmod go-w what others can change"
        elif output.last_line.endswith(FULL):
            hint = "on the host: df -h and df -hi show which file system is full"
        elif output.last_line.endswith(_READ_ONLY):
            hint = "on the host: findmnt --options ro shows what is mounted read-only, lsattr -d what is immutable"
        raise HostFailed(": ".join(filter(None, (host.name, about, output.last_line))), hint)
    return output.stdout


def write_file(host: Host, path: str, content: str | bytes, mode: str = "644", group: str = "") -> None:
    """Writes a file atomically: over standard input (never argv, never a world-readable copy), then renamed.

    group: may read it in addition to root, if the mode allows it. Raises HostFailed if another user could change the
    file's folder.
    """
    text = content if isinstance(content, str) else base64.b64encode(content).decode()
    reader = "cat" if isinstance(content, str) else "base64 -d"
    script(host, _WRITE, path, mode, group, reader, doing=f"writing {path}", stdin=text)


def make_folders(host: Host, *paths: str, owner: str = "root", mode: str = "755") -> None:
    """Creates these folders with this owner (user and group) and mode; parent folders belong to root.

    Raises HostFailed if another user could change a parent folder.
    """
    script(host, _FOLDERS, owner, owner, mode, *paths, doing=f"making {paths[0]}")


@dataclass
class _CheckedFolders:
    """Folders of a host that were found to be writable by root only, in this run."""

    paths: set[str] = field(default_factory=set)


def send_file(host: Host, local: Path, path: str) -> None:
    """Uploads one file, readable by all; raises HostFailed if it did not arrive completely.

    Raises HostFailed if another user could change the target folder; each folder is checked once.
    """
    folder = path.rpartition("/")[0]
    checked = state_of(host, _CheckedFolders).paths
    if folder not in checked:
        script(host, f'{ROOTS_OWN}roots_own "$1"', folder, doing=f"sending {local.name}")
        checked.add(folder)
    put_file(
        host,
        str(local),
        path,
        problem=f"could not send {local.name}",
        hint="check the free disk space on the host: df -h",
    )


def put_file(host: Host, content: str | IO[bytes], path: str, *, problem: str, hint: str) -> None:
    """Writes a file as root. content: a path on this machine, or an open file. Raises HostFailed with these texts."""
    arguments: dict[str, Any] = {"_sudo": True} if uses_sudo(host) else {}
    if not host.put_file(content, path, **arguments):
        raise HostFailed(f"{host.name}: {problem}", hint)


def as_worker(*words: str) -> tuple[str, ...]:
    """The command that runs these words as the worker, for files in the worker's folders, which root does not trust."""
    user = ("setpriv", f"--reuid={WORKER_USER}", f"--regid={WORKER_USER}", "--init-groups", "--no-new-privs")
    return (*user, "env", "--chdir=/", *words)


def read_workers_file(host: Host, path: str, limit: int = 2**20) -> str | None:
    """The text of a file in one of the worker's folders, read as the worker; None if it does not exist.

    limit: bytes. Raises HostFailed if the file is longer.
    """
    output = run(host, *as_worker("head", f"--bytes={limit + 1}", "--", path))
    if not output.ok:
        return None
    if len(output.stdout.encode(errors="replace")) > limit:
        raise HostFailed(f"{host.name}: {path} is longer than {limit} bytes")
    return output.stdout


@dataclass
class _SharedConnection:
    """The connection of a host, which several greenlets use. made: when it was last made again."""

    lock: RLock = field(default_factory=RLock)
    made: float = float("-inf")


def reconnect(host: Host, always: bool = False) -> bool:
    """Tries once to reconnect to a host. A connection that another greenlet has just made again is kept.

    always: replace it nevertheless.
    """
    connection = state_of(host, _SharedConnection)
    with connection.lock:
        if not always and time.monotonic() - connection.made < YOUNG_SECONDS and is_open(host):
            return True
        try:
            host.connected = False
            host.connector.disconnect()
            with gevent.Timeout(15):
                host.connect(show_errors=False, raise_exceptions=True)
        except Exception:
            return False
        except gevent.Timeout:
            return False
        connection.made = time.monotonic()
        return True


def is_open(host: Host) -> bool:
    """Whether the connection to a host is open, as far as this machine can tell."""
    transport = host.connector.client.get_transport() if host.connector.client else None
    return bool(transport and transport.is_active())


def words_of(host: Host, error: BaseException) -> str:
    """The message of an error of rigup's; of one of CONNECTION_ERRORS, that the connection was lost."""
    if isinstance(error, RigupError):
        return error.message
    return f"{host.name}: connection lost ({type(error).__name__}: {error})".replace(": )", ")")


def log_lines(host: Host, unit: str, most: int) -> list[str]:
    """The last lines of a unit's log, without blank ones."""
    lines = run(host, "journalctl", "--no-pager", "-o", "cat", "-n", str(most), "-u", unit).stdout.splitlines()
    return [line.strip() for line in lines if line.strip()]
