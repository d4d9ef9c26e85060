"""How rigup reaches a host: pyinfra's SSH connector, as a careful person would have set it up.

A sudo password goes over standard input, so it shows in no process list. Files travel as whoever is to own them,
with no copy in between. Small packets are sent at once (TCP_NODELAY).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paramiko import BadHostKeyException
from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.util import get_file_io
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput, make_unix_command, make_unix_command_for_host

from rigup.fleet.fact_reading import FactReader, asking, is_harmless
from rigup.fleet.shell_noise import QUIET_SECONDS, announced, reading, receive, send, without_noise, writing
from rigup.fleet.ssh_config import ssh_config

KEEPALIVE_SECONDS = 10
COMMAND_SECONDS = 3600  # where nobody says better: no command of an operation may hang for ever
_SUDO = ("_sudo", "_sudo_user", "_sudo_password", "_use_sudo_login", "_preserve_sudo_env")


class _Prompt:
    """A socket that acknowledges what it receives at once, where the kernel can.

    sshd ends a command in several small packets, each held back until the one before is acknowledged: 40 ms a piece.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv(self, size: int) -> bytes:
        """As the socket's."""
        data = self._sock.recv(size)
        if hasattr(socket, "TCP_QUICKACK"):
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data


class CarefulSSH(SSHConnector):
    """The connector of every host in a rigup run."""

    sudo_password: str | None = None
    facts: FactReader | None = None

    def make_paramiko_kwargs(self) -> dict[str, Any]:
        """As pyinfra's, with ssh_config's ConnectTimeout, and a limit on a peer that accepts and then says nothing."""
        arguments: dict[str, Any] = super().make_paramiko_kwargs()
        said = ssh_config(self.data["ssh_config_file"], arguments["hostname"]).get("connecttimeout", "")
        if said.isdigit() and int(said):
            arguments["timeout"] = int(said)
        arguments["banner_timeout"] = arguments["timeout"]
        return arguments

    def connect(self) -> None:
        """Connects, then keeps the connection quick and notices when it dies."""
        try:
            super().connect()
        except (ConnectError, AttributeError) as error:  # the latter where it is a jump host's key: pyinfra stumbles
            if isinstance(error.__context__, BadHostKeyException):
                name = self._known_as(error.__context__.hostname)
                raise ConnectError(f"Host key for {name} does not match.") from None
            raise
        transport = self.client.get_transport()
        transport.set_keepalive(KEEPALIVE_SECONDS)
        if isinstance(transport.sock, socket.socket):
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport.packetizer._Packetizer__socket = _Prompt(transport.sock)

    def run_shell_command(self, command: StringCommand, **arguments: Any) -> tuple[bool, CommandOutput]:
        """As `_run`; a fact's command may be answered by its reader, and any other makes that forget what it knows."""
        reader = asking()
        if reader is not None and reader.host is self.host:
            return reader.answer(command, arguments, self._run)
        with self._changing():
            return self._run(command, **arguments)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """What is known of the host counts neither for what starts within this nor after it."""
        if self.facts is None or is_harmless():
            yield
            return
        self.facts.forget()
        try:
            yield
        finally:
            self.facts.forget()

    def _run(self, command: StringCommand, **arguments: Any) -> tuple[bool, CommandOutput]:
        """As pyinfra runs it, without what the login shell printed before the command began.

        Raises OSError where a reconnection has failed, instead of stumbling over what is not there.
        """
        if self.client is None or self.client.get_transport() is None:
            raise ConnectionError("not connected")
        arguments["_timeout"] = arguments.get("_timeout") or COMMAND_SECONDS
        wrapped, secret, rest = self._as_root(announced(command), arguments)
        if secret:
            stdin = rest.pop("_stdin", None)
            rest["_stdin"] = [secret, *([stdin] if isinstance(stdin, str) else stdin or [])]
        status, output = super().run_shell_command(wrapped, **rest)
        return status, without_noise(output)

    def start(self, command: StringCommand, text: str, **arguments: Any) -> Any:
        """Starts a command with a text on its standard input, which stays open, and returns the channel to it.

        What a login shell prints comes first on that channel. Raises OSError when the connection goes silent.
        """
        line, secret = self._raw(announced(command), arguments)
        channel = self.client.get_transport().open_session(timeout=QUIET_SECONDS)
        channel.settimeout(QUIET_SECONDS)
        channel.exec_command(line)
        channel.sendall(secret + text.encode())
        return channel

    def put_file(self, filename_or_io: Any, remote_filename: str, *_: Any, **arguments: Any) -> bool:
        """Writes a file there, as whoever the arguments name. Raises OSError when the connection goes silent."""
        command, secret = self._raw(writing(remote_filename), arguments)
        with self._changing(), get_file_io(filename_or_io) as file:
            return send(self.client, command, secret, file)

    def get_file(self, remote_filename: str, filename_or_io: Any, *_: Any, **arguments: Any) -> bool:
        """Reads a file from there, as whoever the arguments name. Raises OSError when the connection goes silent."""
        command, secret = self._raw(reading(remote_filename), arguments)
        with get_file_io(filename_or_io, "wb") as file:
            return receive(self.client, command, secret, file)

    def _known_as(self, hostname: str) -> str:
        """The host as known_hosts has it: with its port where that is not 22."""
        port = getattr(self.client, "_ssh_config", {}).get("port", 22)
        return hostname if port == 22 else f"[{hostname}]:{port}"

    def _as_root(
        self, command: StringCommand, arguments: dict[str, Any]
    ) -> tuple[StringCommand, str | None, dict[str, Any]]:
        """With a sudo password, the command in a sudo that reads it from the first line of standard input.

        Returns the command, that line, and the arguments that are left for pyinfra.
        """
        if not (self.sudo_password and arguments.get("_sudo")):
            return command, None, arguments
        left = {key: value for key, value in arguments.items() if key not in _SUDO}
        environment = {key: left.pop(key) for key in ("_env", "_chdir", "_shell_executable") if key in left}
        words: list[Any] = ["sudo", "-k", "-S", "-p", QuoteString(""), "-H"]
        if user := arguments.get("_sudo_user"):
            words += ["-u", QuoteString(user)]
        return StringCommand(*words, make_unix_command(command, **environment)), self.sudo_password, left

    def _raw(self, command: StringCommand, arguments: dict[str, Any]) -> tuple[str, bytes]:
        """The line for the login shell, and what goes before the rest of standard input."""
        plain = {key: value for key, value in arguments.items() if key in (*_SUDO, "_su_user", "_env")}
        wrapped, secret, rest = self._as_root(command, plain)
        line = make_unix_command_for_host(self.state, self.host, wrapped, **rest)
        return str(line.get_raw_value()), f"{secret}\n".encode() if secret else b""
