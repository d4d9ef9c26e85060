"""A stand-in for a model hub, for networks that lack one: it speaks the real client's protocol and serves a folder.

It is not a mirror or a proxy: it serves files that someone has put into ROOT/ORGANISATION/NAME/. It listens at two
addresses, because the real hub redirects to a CDN on another host. In a lab both are inside the lab's network;
elsewhere they are loopback addresses.

    python -m rigup.lab.hub.server_process ROOT --state FOLDER [--lab NAME | --bind ADDRESS:PORT --cdn ADDRESS:PORT]
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rigup.errors import HostFailed, RigupError
from rigup.lab import process
from rigup.lab.folder import LabFolder, write
from rigup.lab.hub.content import Content
from rigup.lab.hub.faults import Control, Faults, write_faults
from rigup.lab.hub.server import CdnServer, HubServer, RequestLog, serve
from rigup.lab.network.addresses import cdn_address, hub_address
from rigup.lab.network.listening_server import listen
from rigup.lab.network.network import lab_socket

PORT = 8090
HUB = f"http://hub:{PORT}"
"""The hub of a lab, as its machines reach it."""
LFS_MINIMUM = 2**20
START_PATIENCE_S = 20.0


@dataclass(frozen=True)
class StandInHub:
    """A running stand-in, identified by its state folder with pid file, log, addresses, faults and requests."""

    state: Path

    @classmethod
    def start(
        cls,
        root: Path,
        state: Path | None = None,
        *,
        lab: str | None = None,
        bind: str = "127.0.0.1:0",
        cdn: str = "127.0.0.2:0",
        lfs_minimum: int = LFS_MINIMUM,
        commits: dict[str, str] | None = None,
    ) -> Self:
        """Starts a detached stand-in and returns when it answers; keeps one that already runs with this state folder.

        lab: listen inside this lab's network, at its hub and CDN addresses, instead of `bind` and `cdn`; `state` is
        then the lab's folder by default, and `Lab.down` ends the hub, too. Without a lab `state` is required.
        lfs_minimum: the size in bytes from which a file is in separate storage. commits: see `Content`.
        """
        if state is None and lab is None:
            raise ValueError("a hub outside a lab requires a state folder")
        state = state or LabFolder(str(lab)).path
        hub = cls(state)
        state.mkdir(parents=True, exist_ok=True)
        if hub.running:
            return hub
        (state / "hub.json").unlink(missing_ok=True)
        words = [str(root.absolute()), "--state", str(state.absolute())]
        words += ["--lab", lab] if lab else ["--bind", bind, "--cdn", cdn]
        words += ["--lfs-minimum", str(lfs_minimum), "--commits", json.dumps(commits or {})]
        process.start(state, "hub", "rigup.lab.hub.server_process", *words)
        process.wait_for(lambda: (state / "hub.json").exists() or not hub.running, START_PATIENCE_S)
        if not (state / "hub.json").exists():
            hub.stop()
            raise HostFailed(f"the hub stand-in did not start: {process.tail(state / 'hub.log', 1)}")
        return hub

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return process.running(self.state / "hub.pid") is not None

    @property
    def url(self) -> str:
        """The hub's address for clients, such as HF_ENDPOINT."""
        return str(json.loads((self.state / "hub.json").read_text())["hub"])

    @property
    def cdn_url(self) -> str:
        """The address of its redirects."""
        return str(json.loads((self.state / "hub.json").read_text())["cdn"])

    def faults(self, **switches: Any) -> None:
        """Sets the faults from now on (see `Faults`); without arguments all faults are off."""
        write_faults(self.state / "faults.json", Faults(**switches))

    def log(self) -> list[dict[str, Any]]:
        """Every request so far: time, host, method, path, range, authorization (whether, not what), status, bytes."""
        path = self.state / "requests.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def stop(self) -> None:
        """Ends the process; the state folder remains."""
        process.stop(self.state / "hub.pid")


def _sockets(options: argparse.Namespace) -> tuple[socket.socket, socket.socket]:
    if options.lab:
        number = LabFolder(options.lab).existing().number
        inside = [(hub_address(number), PORT), (cdn_address(number), PORT)]
        first, second = (listen(lab_socket(options.lab), address) for address in inside)
    else:
        split = (text.rpartition(":") for text in (options.bind, options.cdn))
        outside = [(host, int(port)) for host, _, port in split]
        first, second = (listen(socket.socket(), address) for address in outside)
    return first, second


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until the process is ended."""
    parser = argparse.ArgumentParser(prog="rigup.lab.hub.server_process", description="A stand-in for a model hub.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--lab")
    parser.add_argument("--bind", default=f"127.0.0.1:{PORT}")
    parser.add_argument("--cdn", default=f"127.0.0.2:{PORT}")
    parser.add_argument("--lfs-minimum", type=int, default=LFS_MINIMUM)
    parser.add_argument("--commits", type=json.loads, default={})
    options = parser.parse_args(arguments)
    try:
        sockets = _sockets(options)
    except RigupError as error:
        sys.exit(error.message)
    content = Content(options.root, options.lfs_minimum, options.commits)
    control, log = Control(options.state / "faults.json"), RequestLog(options.state / "requests.jsonl")
    hub, cdn = HubServer(sockets[0], content, control, log), CdnServer(sockets[1], content, control, log)
    names = [socket.getsockname() for socket in sockets]
    urls = {key: f"http://{host}:{port}" for key, (host, port) in zip(("hub", "cdn"), names, strict=True)}
    write(options.state / "hub.json", json.dumps(urls))
    serve(hub, cdn)


if __name__ == "__main__":
    main()
