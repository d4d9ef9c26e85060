"""Separates the output of login shells (a greeting in .bashrc, a broken conda) from that of commands.

sshd runs every command through the user's shell, SFTP's server too, and bash reads .bashrc then. So each command prints
a mark first, anything before it is discarded, and files travel over standard input and output of `cat`. Each run of
rigup has a new mark, so no file on a host contains it.
"""

from __future__ import annotations

import secrets

from pyinfra.api.command import QuoteString, StringCommand

from rigup.connection.pyinfra_internals import CommandOutput

MARK = f"rigup-begins-here-{secrets.token_hex(8)}"
_NOT_FOR_CSH = str.maketrans({character: f"\\0{ord(character):03o}" for character in "\n!'\\"})


def with_marker(command: StringCommand) -> StringCommand:
    """The command, behind a mark on both of its streams."""
    return StringCommand(f"echo {MARK}; echo {MARK} >&2;", command)


def strip_preamble(output: CommandOutput) -> CommandOutput:
    """The command's own output. A stream without a mark is kept: the command never began, and the text may say why."""
    begins = {
        line.buffer_name: number
        for number, line in reversed(list(enumerate(output.combined_lines)))
        if line.line.endswith(MARK)
    }
    return CommandOutput(
        [line for number, line in enumerate(output.combined_lines) if number > begins.get(line.buffer_name, -1)]
    )


def writing(path: str) -> StringCommand:
    """The command that writes its standard input to a new file, replacing any old one; links are not followed."""
    return with_marker(StringCommand("umask 022; set -C; rm -f --", QuoteString(path), "&& cat >", QuoteString(path)))


def reading(path: str) -> StringCommand:
    """The command that prints a file."""
    return with_marker(StringCommand("cat", QuoteString(path)))


def for_any_shell(line: str) -> str:
    """A line of sh in a form that any login shell passes on: csh and tcsh take no newline and no "!" between quotes."""
    if "\n" not in line and "!" not in line:
        return line
    return f"sh -c 'eval \"$(printf %b \"$0\")\"' '{line.translate(_NOT_FOR_CSH)}'"
