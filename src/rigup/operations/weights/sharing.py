"""A host's part in a shared download: its server, the download's configuration, and its final report.

The server is nginx, unprivileged, in a transient unit that can see the weights but nothing else of rigup
(docs/decisions/0005). It runs while other hosts send requests, and ends with the run that needed it.
"""

import ipaddress
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.host_output import HostOutput
from rigup.host import Host, state_of
from rigup.operations.apt import commands
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.programs import program_file

UNIT = "rigup-shared_weights"  # not a valid name of a service
FOLDER = f"{layout.RUNTIME}/sharing"
CONFIGURATION = f"{layout.RUNTIME}/serve.json"
MOST_STATE = 4_000_000
LONGEST_WORDS = 300
PROGRAMS = (
    "curl_transfers.py",
    "hub_pace.py",
    "peers.py",
    "serve_weights.py",
    "swarm.py",
    "swarm_turns.py",
    "unit_status.py",
    "weights_folder.py",
)
IDLE_SECONDS = 600
MOST_ADDRESSES = 64
STEP = "weights"

# Of rigup's files, the mounts show only weights, links and programs.
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

_END = f"""
systemctl stop {UNIT}.service 2>/dev/null; systemctl reset-failed {UNIT}.service 2>/dev/null
rm -rf "$1" "$2"; true
"""


@dataclass(frozen=True)
class SharingPeer:
    """The address of a host for its peers."""

    name: str
    addresses: tuple[str, ...]
    port: int


@dataclass(frozen=True)
class WeightsServer:
    """The configuration of a host's server.

    allow: single addresses that may connect: those that the controlling machine has found itself, and the host's own.

    complete: complete checkpoints, each with "key", "folder" and "files".
    """

    member: SharingPeer
    listen: tuple[str, ...]
    allow: tuple[str, ...]
    complete: tuple[dict[str, Any], ...] = ()
    keep: bool = False

    @property
    def configuration(self) -> dict[str, Any]:
        """The configuration of serve_weights.py."""
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
class SharedDownload:
    """A host's part in a download of one checkpoint. fetchers: all hosts that download it in this run, in order.

    arrived: called when the files sent to this host have arrived; returns when those of all hosts have.
    """

    key: str
    server: WeightsServer
    fetchers: tuple[str, ...]
    peers: tuple[SharingPeer, ...]
    arrived: Callable[[], None] = lambda: None

    @property
    def job(self) -> dict[str, Any]:
        """The `sharing` part of fetch_weights.py's job."""
        others = [{"name": p.name, "addresses": p.addresses, "port": p.port} for p in self.peers]
        mine = {"name": self.server.member.name, "key": self.key, "folder": FOLDER}
        return {**mine, "fetchers": self.fetchers, "peers": others}


Words = Annotated[str, AfterValidator(lambda text: text[:LONGEST_WORDS])]


class SharingState(HostOutput):
    """A host's report on its download. taken: bytes by source, "hub" or a host; the rest: reasons by host."""

    taken: dict[str, Annotated[int, Field(ge=0, lt=2**63)]] = {}
    banned: dict[str, Words] = {}
    slow: dict[str, Words] = {}
    unreachable: dict[str, Words] = {}


@dataclass
class Sharing:
    """A host's part in sharing weights in this run. parts: its downloads, by checkpoint key.

    serves: whether its server was started; problem: why it could not be. jobs: the job file of each download that has
    begun, by checkpoint key.
    """

    parts: dict[str, SharedDownload] = field(default_factory=dict)
    serves: bool = False
    jobs: dict[str, str] = field(default_factory=dict)
    problem: str = ""


def own_addresses(host: Host) -> tuple[str, ...]:
    """The host's own addresses that its server may bind, as it reports them, without loopback and link-local ones."""
    reported = remote.run(host, "hostname", "-I", timeout=20).stdout.split()[:MOST_ADDRESSES]
    return tuple(str(address) for address in map(_address, reported) if address is not None)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    bad = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
    return None if bad else address


def prepare(host: Host) -> None:
    """Installs the programs and folders for sharing, for a host that downloads or serves."""
    remote.make_folders(host, layout.PROGRAMS)
    remote.make_folders(host, FOLDER, owner=layout.WORKER_USER)
    for program in PROGRAMS:
        text = program_file(program).read_text()
        remote.write_file(host, f"{layout.PROGRAMS}/{program}", text)


def serve(host: Host, server: WeightsServer) -> None:
    """Starts the server of a prepared host, unless it runs with this configuration. Raises HostFailed if it fails."""
    _have_nginx(host)
    path, text = CONFIGURATION, json.dumps(server.configuration)
    active = remote.run(host, "systemctl", "is-active", "--quiet", f"{UNIT}.service").ok
    if active and remote.run(host, "cat", path).stdout.strip() == text:
        return
    remote.run(host, "systemctl", "stop", f"{UNIT}.service")
    remote.run(host, "systemctl", "reset-failed", f"{UNIT}.service")
    remote.write_file(host, path, text)
    words = ["systemd-run", "--quiet", "--service-type=notify", f"--unit={UNIT}", "--description=rigup: weights"]
    words += [f"--uid={layout.WORKER_USER}", f"--gid={layout.WORKER_USER}"]
    words += [f"--property={value}" for value in (*SANDBOX, *(f"IPAddressAllow={one}" for one in server.allow))]
    if not remote.run(host, *words, "python3", f"{layout.PROGRAMS}/serve_weights.py", path).ok:
        lines = remote.log_lines(host, UNIT, 20)
        errors = [line.removeprefix("error: ") for line in lines if line.startswith(("error: ", "nginx: "))]
        raise HostFailed(
            f"{host.name}: cannot share weights: {errors[-1] if errors else 'the server did not start'}",
            f"on the host: journalctl -u {UNIT}",
        )


def serve_if_possible(host: Host, server: WeightsServer) -> bool:
    """Calls `prepare` and `serve`; stores the problem if the host cannot serve. Returns whether it serves."""
    prepare(host)
    sharing = state_of(host, Sharing)
    try:
        serve(host, server)
    except HostFailed as error:
        sharing.problem = error.message
        return False
    sharing.serves = True
    return True


def answering(host: Host, key: str) -> frozenset[str]:
    """The peers of the host's download of a checkpoint that answer it now; for display only, as it is not verified."""
    job = state_of(host, Sharing).jobs.get(key)
    if job is None:
        return frozenset()
    asked = remote.run(host, *remote.as_worker("python3", f"{layout.PROGRAMS}/peers.py", job), timeout=20)
    try:
        names = json.loads(asked.stdout)
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def end(host: Host) -> None:
    """Stops the host's server."""
    state_of(host, Sharing).serves = False
    remote.run(host, "sh", "-c", _END, "rigup", FOLDER, CONFIGURATION)


def sharing_state(host: Host, key: str) -> SharingState:
    """The host's own report on its download of a checkpoint; only for display, as it is not verified."""
    try:
        text = remote.read_workers_file(host, f"{FOLDER}/state/{key}.json", MOST_STATE) or "{}"
        return SharingState.model_validate_json(text.encode(errors="replace"))
    except (ValidationError, HostFailed):
        return SharingState()


def _have_nginx(host: Host) -> None:
    """Installs nginx if it is missing, without starting or enabling Debian's service."""
    if remote.run(host, "test", "-x", "/usr/sbin/nginx").ok:
        return
    report(Progress(host.name, STEP, text="installing nginx to share weights"))
    commands.install_without_service(host, STEP, "nginx")
