"""Serves a lab's apt repositories: `python -m rigup.lab.packages.nvidia_repository_server LAB FOLDER`."""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler

from rigup.lab.folder import LabFolder
from rigup.lab.network.addresses import hub_address
from rigup.lab.network.listening_server import ListeningServer, listen
from rigup.lab.network.network import lab_socket
from rigup.lab.packages.nvidia_repository import PORT


class RepositoryHandler(SimpleHTTPRequestHandler):
    """One connection of a machine's apt; the log has one line per request."""

    protocol_version = "HTTP/1.1"


def main(name: str, folder: str) -> None:
    """Serves a folder at the lab's own address inside."""
    inside = (hub_address(LabFolder(name).existing().number), PORT)
    ListeningServer(listen(lab_socket(name), inside), partial(RepositoryHandler, directory=folder)).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
