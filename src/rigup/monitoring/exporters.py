"""The files that exporters need on a host: listen addresses, the pinned version of DCGM, and rigup's own metrics."""

from __future__ import annotations

from rigup.catalogue.tools.monitoring import exporter_facts
from rigup.layout import PROGRAMS
from rigup.monitoring.paths import (
    GPU_FILE,
    NODE_FILE,
    PREFERENCES,
    PROGRAM,
    TEXT_FILE,
    TEXT_FOLDER,
    TIMED_FILE,
    TIMER_FILE,
)
from rigup.plan import Monitoring
from rigup.systemd.driver_files import preferences

# No option here creates a mount namespace, in which the exporter would report other file systems as read-only.
SANDBOX = (
    "LockPersonality=yes",
    "MemoryDenyWriteExecute=yes",
    "NoNewPrivileges=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    # The last two let it read the state of the clock. Any other call gets an error instead of killing the process.
    "SystemCallFilter=@system-service adjtimex clock_adjtime",
    "SystemCallErrorNumber=EPERM",
)
_SANDBOX = "".join(f"{line}\n" for line in SANDBOX)
_HEAD = "# Written by rigup: monitoring in group_data\n"


def exporter_files(wanted: Monitoring) -> dict[str, str]:
    """Maps path to text, for every file that the wanted exporters need besides their packages."""
    node = {NODE_FILE: _node_exporter(wanted), TIMED_FILE: _release_metrics(), TIMER_FILE: _timer()}
    gpus = {PREFERENCES: _held(), GPU_FILE: _gpu_exporter(wanted)}
    return (node if wanted.node_exporter else {}) | (gpus if wanted.dcgm_exporter else {})


def address(listen: str, port: int) -> str:
    """ADDRESS:PORT, with an IPv6 address in brackets."""
    return f"[{listen}]:{port}" if ":" in listen else f"{listen}:{port}"


def _node_exporter(wanted: Monitoring) -> str:
    facts = exporter_facts().node_exporter
    return (
        f"{_HEAD}[Service]\n"
        "ExecStart=\n"
        f"ExecStart={facts.program} --web.listen-address={address(wanted.listen, wanted.port)}"
        f" --collector.textfile.directory={TEXT_FOLDER}\n"
        "CapabilityBoundingSet=\n"
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX\n"
        f"{_SANDBOX}"
    )


def _gpu_exporter(wanted: Monitoring) -> str:
    variable = exporter_facts().gpu_exporter.listen_variable
    return (
        f"{_HEAD}[Service]\n"
        f"Environment={variable}={address(wanted.listen, wanted.dcgm_port)}\n"
        # some releases do not exit when systemd asks them to: NVIDIA/dcgm-exporter 606
        "TimeoutStopSec=10\n"
    )


def _held() -> str:
    return preferences("DCGM and its exporter need matching versions", exporter_facts().gpu_exporter.versions)


def _release_metrics() -> str:
    return (
        f"{_HEAD}[Unit]\n"
        "Description=rigup: which release of each service runs, for Prometheus\n\n"
        "[Service]\n"
        "Type=oneshot\n"
        f"ExecStart=/usr/bin/python3 -I {PROGRAMS}/{PROGRAM} {TEXT_FILE}\n"
        # the folder's owner differs between Debian releases
        "CapabilityBoundingSet=CAP_DAC_OVERRIDE\n"
        "PrivateDevices=yes\n"
        "PrivateNetwork=yes\n"
        "PrivateTmp=yes\n"
        "ProtectControlGroups=yes\n"
        "ProtectHome=yes\n"
        "ProtectKernelLogs=yes\n"
        "ProtectKernelModules=yes\n"
        "ProtectKernelTunables=yes\n"
        "ProtectSystem=strict\n"
        f"ReadWritePaths={TEXT_FOLDER}\n"
        "RestrictAddressFamilies=AF_UNIX\n"
        "UMask=0022\n"
        f"{_SANDBOX}"
    )


def _timer() -> str:
    return (
        f"{_HEAD}[Unit]\n"
        "Description=rigup: which release of each service runs, every half minute\n\n"
        "[Timer]\n"
        "OnActiveSec=0\n"
        "OnUnitActiveSec=30\n"
        "AccuracySec=5\n\n"
        "[Install]\n"
        "WantedBy=timers.target\n"
    )
