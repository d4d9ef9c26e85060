"""An SSH server on this machine that lets nobody in: it shows its host key and accepts no other."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

import paramiko


class _Door(paramiko.ServerInterface):
    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: Any) -> int:
        return int(paramiko.common.AUTH_FAILED)


class SshServer:
    """Listens within a `with` block. `port`: of 127.0.0.1. `key`: the host's."""

    def __init__(self) -> None:
        self.key = paramiko.ECDSAKey.generate()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._sessions: list[paramiko.Transport] = []

    def __enter__(self) -> SshServer:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        for session in self._sessions:
            session.close()

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                session = paramiko.Transport(self._socket.accept()[0])
                session.add_server_key(self.key)
                self._sessions.append(session)
                with suppress(paramiko.SSHException, EOFError):  # a client that did not like the key
                    session.start_server(threading.Event(), server=_Door())
