"""The gateways that gateway.py measures: each told where the engines are, and which of them are to get no requests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from rigup.gateway.files import ENVIRONMENT
from rigup.gateway.haproxy import configuration
from rigup.gateway.paths import ADMIN_SOCKET, FOLDER, HOLD_SOCKET
from rigup.gateway.servers import backend_name, server_name
from rigup.gateway_settings import Backend, Gateway, GatewayPlan, Route
from rigup.programs.gateway.gateway_admin import answer

PORT = 9080
MODEL = "m"


class Haproxy:
    """HAProxy with the configuration that rigup writes."""

    def __init__(self, folder: Path, ports: list[int], hold: int) -> None:
        engines = [
            Backend(
                host=f"e{port}", group="g", service="s", address="127.0.0.1", port=port, health_path="/health",
                weight=1, engine="", wants_key=False,
            )
            for port in ports
        ]  # fmt: skip
        gateway = Gateway(port=PORT, hold=hold)
        plan = GatewayPlan(host="h", group="g", gateway=gateway, routes=(Route(model=MODEL, backends=tuple(engines)),))
        self.servers = {one.port: f"{backend_name(MODEL)}/{server_name(one)}" for one in engines}
        self.socket = str(folder / "admin.sock")
        text = configuration(plan).replace(ADMIN_SOCKET, self.socket)
        text = text.replace(HOLD_SOCKET, str(folder / "hold.sock")).replace(FOLDER, str(folder))
        (folder / "haproxy.cfg").write_text(text)
        words = ["/usr/sbin/haproxy", "-db", "-f", str(folder / "haproxy.cfg")]
        environment = {**os.environ, **ENVIRONMENT}
        nowhere = subprocess.DEVNULL
        self.process = subprocess.Popen(words, env=environment, stdout=nowhere, stderr=nowhere)

    def ask(self, command: str) -> str:
        """What HAProxy answers on its admin socket."""
        return answer(self.socket, command, time.monotonic() + 10)

    def drain(self, port: int) -> None:
        """Sends no new requests to an engine."""
        self.ask(f"set server {self.servers[port]} state drain")

    def ready(self, port: int) -> None:
        """Lets an engine have requests again."""
        self.ask(f"set server {self.servers[port]} state ready")

    def is_up(self, port: int) -> bool:
        """Whether the gateway has seen that an engine is healthy."""
        name = self.servers[port].partition("/")[2]
        try:
            rows = [row.split(",") for row in self.ask("show stat").splitlines()]
        except OSError:
            return False
        return any(row[1] == name and row[17] == "UP" for row in rows if len(row) > 17)


class Nginx:
    """nginx, told of engines by a reload."""

    def __init__(self, folder: Path, ports: list[int], hold: int) -> None:
        self.folder, self.ports = folder, ports
        self.write(None)
        words = ["/usr/sbin/nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def write(self, without: int | None) -> None:
        """Writes the configuration. without: the engine that gets no requests."""
        engines = "".join(
            f"server 127.0.0.1:{port}{' down' if port == without else ''} max_fails=1 fail_timeout=2s;"
            for port in self.ports
        )
        paths = "".join(
            f"{kind}_temp_path {self.folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (self.folder / "nginx.conf").write_text(
            f"daemon off; worker_processes 1; pid {self.folder}/pid; error_log {self.folder}/error;"
            f"events {{}} http {{ access_log off; {paths} upstream b {{ least_conn; {engines} }}"
            f"server {{ listen 127.0.0.1:{PORT}; location / {{ proxy_pass http://b; proxy_http_version 1.1;"
            'proxy_set_header Connection ""; proxy_buffering off; proxy_read_timeout 1h;'
            "proxy_next_upstream error timeout http_503 non_idempotent; } } }"
        )

    def drain(self, port: int) -> None:
        """Sends no new requests to an engine."""
        self.write(port)
        self.process.send_signal(signal.SIGHUP)
        time.sleep(0.5)

    def ready(self, port: int) -> None:
        """Lets an engine have requests again."""
        self.write(None)
        self.process.send_signal(signal.SIGHUP)

    def is_up(self, port: int) -> bool:
        """Always: it asks no engine for its health."""
        return True
