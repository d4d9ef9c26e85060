"""A host's part in a download that hosts share: its server, what its download is told, what it told in the end.

The server is nginx, unprivileged, in a transient unit that sees the weights and nothing else of rigup's
(docs/decisions/0005). It lives as long as somebody asks it for something, and ends with the run that needed it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rigup.programs
from rigup import layout
from rigup.errors import HostFailed
from rigup.operations import apt_commands, remote
from rigup.operations.progress import Progress, report

UNIT = "rigup-shared_weights"  # no service can be called that
FOLDER = f"{layout.RUNTIME}/sharing"
PROGRAMS = ("neighbours.py", "serve_weights.py", "swarm.py", "swarm_order.py", "unit_status.py", "weights_folder.py")
IDLE_SECONDS = 600
STEP = "weights"
_DATA, _PROBLEM, _SERVES = "rigup_sharing", "rigup_sharing_problem", "rigup_sharing_serves"

# Mounts leave nothing of rigup's to be seen but weights, links and programs.
SANDBOX = (
    "NotifyAccess=all",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "LockPersonality=yes",
    "RestrictSUIDSGID=yes",
    "RestrictRealtime=yes",
    "RestrictNamespaces=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    f"InaccessiblePaths=-{layout.CONFIGURATION}",
    f"ReadWritePaths={FOLDER}",
    "Nice=5",
    "IPAddressDeny=any",
)

_FOLDERS = 'install -d -m 755 "$2"; install -d -m 755 -o "$1" -g "$1" "$3" "$3/files" "$3/state"'
_END = (
    f'systemctl stop {UNIT}.service 2>/dev/null; systemctl reset-failed {UNIT}.service 2>/dev/null; rm -rf "$1"; true'
)


@dataclass(frozen=True)
class Member:
    """A host as the others find it."""

    name: str
    addresses: tuple[str, ...]
    port: int


@dataclass(frozen=True)
class Server:
    """What a host serves to whom, at which of its own addresses.

    complete: checkpoints that are there, each with "key", "folder" and "files".
    """

    member: Member
    listen: tuple[str, ...]
    allow: tuple[str, ...]
    complete: tuple[dict[str, Any], ...] = ()
    keep: bool = False

    @property
    def configuration(self) -> dict[str, Any]:
        """For serve_weights.py."""
        return {
            "host": self.member.name,
            "folder": FOLDER,
            "port": self.member.port,
            "listen": self.listen,
            "allow": self.allow,
            "checkpoints": self.complete,
            "idle_s": 0 if self.keep else IDLE_SECONDS,
        }


@dataclass(frozen=True)
class Part:
    """A host's part in getting one checkpoint. fetchers: every host that fetches it in this run, in the run's order.

    arrived: to be called when what this machine sends to the host is there; returns when that of all others is, too.
    """

    key: str
    server: Server
    fetchers: tuple[str, ...]
    neighbours: tuple[Member, ...]
    arrived: Callable[[], None] = lambda: None

    @property
    def job(self) -> dict[str, Any]:
        """For fetch_weights.py."""
        others = [{"name": n.name, "addresses": n.addresses, "port": n.port} for n in self.neighbours]
        mine = {"name": self.server.member.name, "key": self.key, "folder": FOLDER}
        return {**mine, "fetchers": self.fetchers, "neighbours": others}


def take_part(host: Any, part: Part) -> None:
    """From now on the host downloads this checkpoint together with others."""
    host.connector_data.setdefault(_DATA, {})[part.key] = part


def part_of(host: Any, key: str) -> Part | None:
    """The host's part in getting a checkpoint, None where it is on its own."""
    found: Part | None = host.connector_data.get(_DATA, {}).get(key)
    return found


def addresses_of(host: Any) -> tuple[str, ...]:
    """The host's own addresses, loopback and link-local ones left out."""
    said = remote.ask(host, "hostname", "-I", timeout=20).stdout.split()
    return tuple(address for address in said if not address.startswith(("169.254.", "fe80:")))


def prepare(host: Any) -> None:
    """The programs and folders that a part in a swarm needs, for a host that takes and for one that serves."""
    remote.script(host, _FOLDERS, layout.WORKER_USER, layout.PROGRAMS, FOLDER)
    for program in PROGRAMS:
        text = (Path(rigup.programs.__file__).parent / program).read_text()
        remote.write_file(host, f"{layout.PROGRAMS}/{program}", text)


def serve(host: Any, server: Server) -> None:
    """Has a prepared host serve; what serves that already stays. Raises HostFailed where it cannot."""
    _have_nginx(host)
    path, text = f"{FOLDER}/serve.json", json.dumps(server.configuration)
    active = remote.ask(host, "systemctl", "is-active", "--quiet", f"{UNIT}.service").ok
    if active and remote.ask(host, "cat", path).stdout.strip() == text:
        return
    remote.ask(host, "systemctl", "stop", f"{UNIT}.service")
    remote.ask(host, "systemctl", "reset-failed", f"{UNIT}.service")
    remote.write_file(host, path, text)
    words = ["systemd-run", "--quiet", "--service-type=notify", f"--unit={UNIT}", "--description=rigup: weights"]
    words += [f"--uid={layout.WORKER_USER}", f"--gid={layout.WORKER_USER}"]
    words += [f"--property={value}" for value in (*SANDBOX, *(f"IPAddressAllow={one}" for one in server.allow))]
    if not remote.ask(host, *words, "python3", f"{layout.PROGRAMS}/serve_weights.py", path).ok:
        lines = remote.ask(host, "journalctl", "--no-pager", "-o", "cat", "-n", "20", "-u", UNIT).stdout.splitlines()
        said = [line.removeprefix("error: ") for line in lines if line.startswith(("error: ", "nginx: "))]
        raise HostFailed(
            f"{host.name}: weights cannot be shared: {said[-1] if said else 'the server did not start'}",
            f"on the host: journalctl -u {UNIT}",
        )


def serve_if_possible(host: Any, server: Server) -> bool:
    """As `prepare` and `serve`; that it cannot serve is noted, and no reason to stop. Returns whether it serves."""
    prepare(host)
    try:
        serve(host, server)
    except HostFailed as error:
        host.connector_data[_PROBLEM] = error.message
        return False
    host.connector_data[_SERVES] = True
    return True


def problem_of(host: Any) -> str:
    """Why the host does not serve, "" where nothing kept it from it."""
    found: str = host.connector_data.get(_PROBLEM, "")
    return found


def serves(host: Any) -> bool:
    """Whether a server was started there."""
    return _SERVES in host.connector_data


def end(host: Any) -> None:
    """The host serves no more."""
    host.connector_data.pop(_SERVES, None)
    remote.ask(host, "sh", "-c", _END, "rigup", FOLDER)


def told(host: Any, key: str) -> dict[str, Any]:
    """What the host's download of a checkpoint says of itself: "taken" bytes by source, "shunned", "unreachable"."""
    try:
        found = json.loads(remote.ask(host, "cat", f"{FOLDER}/state/{key}.json").stdout)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _have_nginx(host: Any) -> None:
    """Installs nginx where it is missing, without the service that Debian would start and enable."""
    if remote.ask(host, "test", "-x", "/usr/sbin/nginx").ok:
        return
    report(Progress(host.name, STEP, text="installing nginx, to share what arrives"))
    remote.ask(host, "systemctl", "mask", "--quiet", "nginx.service")
    try:
        apt_commands.update(host, STEP)
        apt_commands.install(host, STEP, ["nginx"])
    finally:
        remote.ask(host, "systemctl", "unmask", "--quiet", "nginx.service")
        remote.ask(host, "systemctl", "disable", "--quiet", "nginx.service")
