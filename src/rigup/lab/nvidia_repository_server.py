"""Serves the lab's apt repositories inside a lab: `python -m rigup.lab.nvidia_repository_server LAB FOLDER`."""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

from rigup.lab.addresses import hub_address
from rigup.lab.folder import LabFolder
from rigup.lab.network import lab_socket
from rigup.lab.nvidia_repository import PORT


class RepositoryHandler(SimpleHTTPRequestHandler):
    """One connection of a machine's apt; each request is a line of the log."""

    protocol_version = "HTTP/1.1"


class RepositoryServer(ThreadingHTTPServer):
    """Listens at the lab's own address inside."""

    daemon_threads = True

    def __init__(self, name: str, folder: str) -> None:
        address = (hub_address(LabFolder(name).existing().number), PORT)
        super().__init__(address, partial(RepositoryHandler, directory=folder), False)
        self.socket.close()
        self.socket = lab_socket(name)
        self.server_bind()
        self.server_activate()


if __name__ == "__main__":
    RepositoryServer(sys.argv[1], sys.argv[2]).serve_forever()
