"""Serves verified files of checkpoints to other hosts of the fleet, with nginx, until no requests arrive.

    serve_weights.py CONFIG    CONFIG is a JSON file, see `ServingConfig`

nginx serves FOLDER/files (links, by sha256) and FOLDER/state, read-only, to the addresses in `allow` only. At the start
this program adds the files of complete checkpoints; a running fetch_weights.py adds the files that it verifies. The
program ends, and removes the links, when no request has arrived for `idle_s` seconds.
It needs weights_folder.py, peers.py, hub_pace.py, curl_transfers.py and unit_status.py in its folder, and nginx
1.18 or later.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__:
    from rigup.programs.unit_status import notify
    from rigup.programs.weights import weights_folder as weights
    from rigup.programs.weights.peers import Offer, PeerSharing
    from rigup.programs.weights.weights_folder import EXIT_FAILED, EXIT_INPUT, FetchError, File, Receipt
else:
    sys.dont_write_bytecode = True
    import weights_folder as weights  # type: ignore[import-not-found, no-redef]
    from peers import Offer, PeerSharing  # type: ignore[import-not-found, no-redef]
    from unit_status import notify  # type: ignore[import-not-found, no-redef]
    from weights_folder import EXIT_FAILED, EXIT_INPUT, FetchError, File, Receipt  # type: ignore[no-redef]

START_S = 10.0
TICK_S = 0.05

NGINX = """\
daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
  access_log syslog:server=unix:{folder}/log,nohostname;
  client_body_temp_path {folder}/temporary/body;
  proxy_temp_path {folder}/temporary/proxy;
  fastcgi_temp_path {folder}/temporary/fastcgi;
  uwsgi_temp_path {folder}/temporary/uwsgi;
  scgi_temp_path {folder}/temporary/scgi;
  default_type application/octet-stream;
  server_tokens off;
  log_not_found off;
  sendfile on;
  sendfile_max_chunk 2m;
  aio threads;
  limit_conn_zone $server_name zone=files:1m;
  limit_conn_status 503;
  limit_conn_log_level info;
  server {{
    {listen}
    server_name weights;
    root {folder};
    client_max_body_size 1;
    {allow}
    deny all;
    location / {{ return 404; }}
    location ~ "^/files/[0-9a-f]{{64}}$" {{ limit_except GET {{ deny all; }} limit_conn files {connections}; }}
    location ~ "^/state/[0-9a-z-]+[.]json$" {{ limit_except GET {{ deny all; }} }}
  }}
}}
"""


@dataclass(frozen=True)
class ServingConfig:
    """host: this host's name in the swarm. listen: its own addresses. allow: single addresses that may send requests.

    checkpoints: complete ones, each with "key", "folder" and "files". idle_s: 0 to serve until stopped.
    connections: concurrent file requests; a host that gets 503 asks another peer, so that files spread as a tree.
    """

    host: str
    folder: Path
    port: int
    listen: tuple[str, ...]
    allow: tuple[str, ...]
    checkpoints: tuple[dict[str, Any], ...] = ()
    idle_s: float = 0.0
    connections: int = 4


def load(path: Path) -> ServingConfig:
    """Reads a configuration. Raises FetchError if it is invalid."""
    try:
        data = json.loads(path.read_text())
        lists = {key: tuple(data.get(key, ())) for key in ("listen", "allow", "checkpoints")}
        config = ServingConfig(**{**data, **lists, "folder": Path(data["folder"])})
        for word in (*config.listen, *config.allow):
            if str(ipaddress.ip_address(word)) != word:
                raise ValueError(f"{word} is not an address in its usual form")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FetchError(EXIT_INPUT, f"{path}: not a configuration: {error!r}") from None
    return config


def nginx_configuration(config: ServingConfig) -> str:
    """nginx's configuration."""
    hosts = [f"[{address}]" if ":" in address else address for address in config.listen]
    return NGINX.format(
        folder=config.folder,
        listen=" ".join(f"listen {host}:{config.port};" for host in hosts),
        allow=" ".join(f"allow {address};" for address in config.allow),
        connections=config.connections,
    )


def offer(config: ServingConfig) -> None:
    """Offers the files of complete checkpoints that their receipts verify."""
    for checkpoint in config.checkpoints:
        folder = Path(checkpoint["folder"])
        receipt = Receipt(folder)
        mine = Offer(PeerSharing(config.host, checkpoint["key"], config.folder, (config.host,), ()))
        for each in checkpoint["files"]:
            file = File(str(each["path"]), int(each["size"]), str(each["sha256"]))
            if receipt.covers(file):
                mine.add(file.sha256, folder / file.path)
        mine.publish(fetching={}, hashing=[], claims=[], hub_bytes=0)


@contextlib.contextmanager
def served(config: ServingConfig) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """Runs nginx; yields it and the socket that receives its access log. Raises FetchError if it does not start."""
    log = config.folder / "log"
    log.unlink(missing_ok=True)
    for name in ("files", "state", "temporary"):
        (config.folder / name).mkdir(parents=True, exist_ok=True)
    (config.folder / "nginx.conf").write_text(nginx_configuration(config))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as access_log:
        access_log.bind(str(log))
        log.chmod(0o622)  # if root started this by hand, nginx's workers have another user
        program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "nginx"
        try:
            nginx = subprocess.Popen([program, "-p", str(config.folder), "-c", str(config.folder / "nginx.conf")])
        except OSError as error:
            raise FetchError(EXIT_FAILED, f"nginx: {error.strerror}") from None
        try:
            wait_for(nginx, config)
            yield nginx, access_log
        finally:
            nginx.terminate()
            nginx.wait()
            log.unlink(missing_ok=True)


def wait_for(nginx: subprocess.Popen[bytes], config: ServingConfig) -> None:
    """Returns when nginx accepts connections on every address. Raises FetchError if it does not."""
    deadline = time.monotonic() + START_S
    for address in config.listen:
        while True:
            try:
                socket.create_connection((address, config.port), timeout=1).close()
                break
            except OSError as error:
                if nginx.poll() is not None or time.monotonic() > deadline:
                    ended = f"ended with {nginx.returncode}" if nginx.poll() is not None else str(error)
                    where = f"{address} port {config.port}"
                    raise FetchError(EXIT_FAILED, f"nginx does not serve on {where}: {ended}") from None
                time.sleep(TICK_S)


def serve(config: ServingConfig) -> None:
    """Serves until no more requests arrive. Raises FetchError if nginx exits by itself."""
    with served(config) as (nginx, access_log):
        notify(f"READY=1\nSTATUS=serving on port {config.port}")
        access_log.settimeout(1.0)
        asked = time.monotonic()
        while nginx.poll() is None:
            try:
                access_log.recv(2**16)
                asked = time.monotonic()
            except TimeoutError:
                if config.idle_s and time.monotonic() - asked > config.idle_s:
                    for name in ("files", "state"):
                        shutil.rmtree(config.folder / name, ignore_errors=True)
                    return
        raise FetchError(EXIT_FAILED, f"nginx ended with {nginx.returncode}")


def main(arguments: list[str]) -> int:
    """Parses the command line and runs; returns the exit code."""
    weights.end_on_signals()
    os.umask(0o022)

    def run() -> None:
        config = load(Path(arguments[0] if arguments else "/dev/null"))
        offer(config)
        serve(config)

    code = weights.exit_code(run, "serve_weights")
    return 0 if code == 128 + signal.SIGTERM else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
