"""What a login shell prints (a greeting in .bashrc, a broken conda) is kept apart from what commands print.

sshd runs every command through the user's shell, SFTP's server too, and bash reads .bashrc then. So each command says
a mark first, what comes before it is thrown away, and files travel over standard input and output of `cat`.
"""

from __future__ import annotations

import shutil
from typing import IO, Any

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.connectors.util import CommandOutput

MARK = "rigup-begins-here-5f1c"
QUIET_SECONDS = 60
CHUNK = 1 << 18


def announced(command: StringCommand) -> StringCommand:
    """The command, behind a mark on both of its streams."""
    return StringCommand(f"echo {MARK}; echo {MARK} >&2;", command)


def without_noise(output: CommandOutput) -> CommandOutput:
    """What the command itself printed. A stream without a mark is kept: the command never began, and it may say why."""
    begins = {
        line.buffer_name: number
        for number, line in reversed(list(enumerate(output.combined_lines)))
        if line.line.endswith(MARK)
    }
    return CommandOutput(
        [line for number, line in enumerate(output.combined_lines) if number > begins.get(line.buffer_name, -1)]
    )


def writing(path: str) -> StringCommand:
    """The command that writes its standard input to a file."""
    return StringCommand("cat >", QuoteString(path))


def reading(path: str) -> StringCommand:
    """The command that prints a file."""
    return announced(StringCommand("cat", QuoteString(path)))


def send(client: Any, command: str, first: bytes, file: IO[bytes]) -> bool:
    """Runs a command with `first` and then a file on standard input. Raises OSError when the connection goes silent."""
    stdin, stdout, _ = client.exec_command(command, timeout=QUIET_SECONDS)
    try:
        stdin.write(first)
        shutil.copyfileobj(file, stdin, CHUNK)
        stdin.close()
    except OSError:
        if not stdout.channel.exit_status_ready():  # else it gave up in the middle, of a full disk for one
            raise
    stdin.channel.shutdown_write()
    return _succeeds(stdout.channel)


def receive(client: Any, command: str, first: bytes, file: IO[bytes]) -> bool:
    """Runs a command made with `reading` and writes what it prints into a file. Raises OSError as `send` does."""
    stdin, stdout, _ = client.exec_command(command, timeout=QUIET_SECONDS)
    stdin.write(first)
    stdin.channel.shutdown_write()
    begin, held = f"{MARK}\n".encode(), b""
    while begin not in held and (chunk := stdout.channel.recv(CHUNK)):
        held += chunk
    file.write(held.partition(begin)[2])
    while chunk := stdout.channel.recv(CHUNK):
        file.write(chunk)
    return _succeeds(stdout.channel)


def _succeeds(channel: Any) -> bool:
    while channel.recv(CHUNK):
        pass
    if not channel.status_event.wait(QUIET_SECONDS):
        raise OSError("the transfer went silent")
    return bool(channel.recv_exit_status() == 0)
