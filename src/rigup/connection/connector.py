"""The SSH connector of rigup: pyinfra's, with safe settings.

A sudo password goes over standard input, so it shows in no process list, and only when sudo asks for it. Output is
bounded and may be any bytes (`command_channel`). Files are transferred directly as their future owner. Small packets
are sent at once (TCP_NODELAY).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import gevent
from pyinfra.api.command import StringCommand

from rigup.connection import host_keys, liveness, pyinfra_internals
from rigup.connection.command_channel import (
    QUIET_SECONDS,
    Limits,
    Sessions,
    SudoPassword,
    as_bytes,
    authenticate,
    receive,
    run,
    send,
)
from rigup.connection.fact_cache import CURRENT_READER, READ_ONLY, FactReader
from rigup.connection.login_shell import for_any_shell, reading, strip_preamble, with_marker, writing
from rigup.connection.proxy_command import proxy_end
from rigup.connection.pyinfra_internals import CommandOutput, ConnectError, SSHConnector, get_file_io
from rigup.connection.ssh_config import ssh_config

COMMAND_SECONDS = 3600  # the default: no command of an operation may hang for ever
_SUDO = ("_sudo", "_sudo_user", "_use_sudo_login", "_preserve_sudo_env")
_ENVIRONMENT = ("_env", "_chdir", "_shell_executable")


class RigupSSHConnector(SSHConnector):
    """The connector of every host in a rigup run."""

    sudo_password: str | None = None
    facts: FactReader | None = None

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.sessions = Sessions(self.host.name)
        self._watching: Any = None

    def make_paramiko_kwargs(self) -> dict[str, Any]:
        """As pyinfra's, with ssh_config's ConnectTimeout, and a time limit for peers that accept and stay silent.

        Small packets are sent at once from the first on.
        """
        arguments: dict[str, Any] = super().make_paramiko_kwargs()
        said = ssh_config(self.data["ssh_config_file"], arguments["hostname"]).get("connecttimeout", "")
        if said.isdigit() and int(said):
            arguments["timeout"] = int(said)
        arguments["banner_timeout"] = arguments["timeout"]
        arguments["transport_factory"] = host_keys.transport
        return arguments

    def connect(self) -> None:
        """Connects, and watches whether the other end is alive."""
        self.sessions = Sessions(self.host.name)
        try:
            super().connect()
        except (ConnectError, AttributeError) as error:  # the latter where it is a jump host's key: pyinfra stumbles
            if text := host_keys.mismatch(error, self.client):
                raise ConnectError(text) from None
            if text := proxy_end(self.client):
                raise ConnectError(f"ProxyCommand ended with {text}") from None
            raise
        self._stop_watching()
        self._watching = gevent.spawn(liveness.watch, self.client.get_transport())

    def disconnect(self) -> None:
        """As pyinfra's."""
        self._stop_watching()
        super().disconnect()

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.kill(block=False)
            self._watching = None

    def run_shell_command(self, command: StringCommand, **arguments: Any) -> tuple[bool, CommandOutput]:
        """Like `_run`; the fact reader may answer a fact's command, and any other command clears its cache."""
        reader = CURRENT_READER.get()
        if reader is not None and reader.host is self.host:
            return reader.answer(command, arguments, self._run)
        with self._changing():
            return self._run(command, **arguments)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Facts cached so far are not used for anything that starts within this or after it."""
        if self.facts is None or READ_ONLY.get():
            yield
            return
        self.facts.forget()
        try:
            yield
        finally:
            self.facts.forget()

    def _run(self, command: StringCommand, **arguments: Any) -> tuple[bool, CommandOutput]:
        """Runs it like pyinfra, without what the login shell printed before the command began.

        Raises OSError if a reconnection has failed.
        """
        stdin, timeout = arguments.pop("_stdin", None), arguments.pop("_timeout", None) or COMMAND_SECONDS
        good, beginning = arguments.pop("_success_exit_codes", None) or [0], arguments.pop("_beginning", None)
        for unused in ("_get_pty", "print_output", "print_input"):
            arguments.pop(unused, None)
        line, password = self._line(with_marker(command), arguments)
        session, name = self._session(), self.host.name
        status, output = run(session, name, line, as_bytes(stdin), timeout, password, Limits(), beginning)
        return status in good, strip_preamble(output)

    def start(self, command: StringCommand, text: str, **arguments: Any) -> Any:
        """Starts a command with a text on its standard input, which stays open, and returns the channel to it.

        Output of the login shell comes first on that channel. Raises OSError when the connection goes silent.
        """
        channel, _ = self._begun(command, arguments)
        channel.sendall(text.encode())
        return channel

    def stream(self, command: StringCommand, **arguments: Any) -> tuple[Any, bytes]:
        """Starts a command without standard input. Returns its channel and the standard error that was read so far.

        Output of the login shell comes first on both streams. Raises OSError when the connection goes silent.
        """
        channel, heard = self._begun(command, arguments)
        channel.shutdown_write()
        return channel, heard

    def _begun(self, command: StringCommand, arguments: dict[str, Any]) -> tuple[Any, bytes]:
        """Starts a command, as root if the arguments say so. Returns its channel and the standard error so far."""
        line, password = self._line(with_marker(command), arguments)
        channel = self._session()
        channel.settimeout(QUIET_SECONDS)
        channel.exec_command(line)
        return channel, authenticate(channel, self.host.name, password, QUIET_SECONDS) if password else b""

    def put_file(self, filename_or_io: Any, remote_filename: str, *_: Any, **arguments: Any) -> bool:
        """Writes a file to the host, as the user in the arguments. Raises OSError if the connection stalls."""
        line, password = self._line(writing(remote_filename), _as_whom(arguments))
        with self._changing(), get_file_io(filename_or_io) as file, closing(self._session()) as channel:
            return send(channel, self.host.name, line, password, file)

    def get_file(self, remote_filename: str, filename_or_io: Any, *_: Any, **arguments: Any) -> bool:
        """Reads a file from the host, as the user in the arguments. Raises OSError if the connection stalls."""
        line, password = self._line(reading(remote_filename), _as_whom(arguments))
        with get_file_io(filename_or_io, "wb") as file, closing(self._session()) as channel:
            return receive(channel, self.host.name, line, password, file)

    def _session(self) -> Any:
        transport = self.client.get_transport() if self.client else None
        if transport is None:
            raise ConnectionError("not connected")
        return self.sessions.open(transport)

    def _line(self, command: StringCommand, arguments: dict[str, Any]) -> tuple[str, SudoPassword | None]:
        """The line for the login shell, and the password for sudo if it asks."""
        if not (self.sudo_password and arguments.get("_sudo")):
            return for_any_shell(pyinfra_internals.command_line(self.host, command, arguments)), None
        password = SudoPassword(f"rigup-asks-{secrets.token_hex(8)}:", self.sudo_password)
        environment = {key: value for key, value in arguments.items() if key in _ENVIRONMENT}
        user = arguments.get("_sudo_user")
        line = pyinfra_internals.command_line_behind_sudo(password.prompt, user, command, environment)
        return for_any_shell(line), password


def _as_whom(arguments: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if key in (*_SUDO, "_su_user", "_env")}
