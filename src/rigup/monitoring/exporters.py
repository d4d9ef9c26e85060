"""The files that exporters need on a host: listen addresses, the pinned version of DCGM, and rigup's own metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rigup.layout import PROGRAMS
from rigup.plan import Monitoring
from rigup.systemd.driver_files import preferences
from rigup.systemd.quoting import unit_file
from rigup.units import with_port

UNITS = "/etc/systemd/system"
NODE_UNIT = "prometheus-node-exporter.service"
GPU_UNIT = "nvidia-dcgm-exporter.service"
# No service can have this name, because service names do not contain underscores.
TIMER = "rigup-release_metrics.timer"

NODE_FILE = f"{UNITS}/{NODE_UNIT}.d/rigup.conf"
GPU_FILE = f"{UNITS}/{GPU_UNIT}.d/rigup.conf"
TIMER_FILE = f"{UNITS}/{TIMER}"
TIMED_FILE = f"{UNITS}/{TIMER.removesuffix('.timer')}.service"
PREFERENCES = "/etc/apt/preferences.d/00-rigup-nvidia-dcgm"
TEXT_FOLDER = "/var/lib/prometheus/node-exporter"
TEXT_FILE = f"{TEXT_FOLDER}/rigup.prom"
PROGRAM = "release_metrics.py"

# The files of each exporter, and the units that they belong to.
NODE_FILES = (NODE_FILE, TIMED_FILE, TIMER_FILE)
GPU_FILES = (GPU_FILE, PREFERENCES)
NODE_UNITS = (TIMER, NODE_UNIT)
GPU_UNITS = (GPU_UNIT,)
UNIT_OF = {NODE_FILE: NODE_UNIT, TIMER_FILE: TIMER, GPU_FILE: GPU_UNIT}

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


def exporter_files(wanted: Monitoring) -> dict[str, str]:
    """Maps path to text, for every file that the wanted exporters need besides their packages."""
    from rigup.catalogue.tools.monitoring import exporter_facts  # many fleets only look for files to remove

    facts = exporter_facts()
    program, variable = facts.node_exporter.program, facts.gpu_exporter.listen_variable
    node = {NODE_FILE: _node_exporter(wanted, program), TIMED_FILE: _release_metrics(), TIMER_FILE: _timer()}
    held = preferences("DCGM and its exporter need matching versions", facts.gpu_exporter.versions)
    gpus = {PREFERENCES: held, GPU_FILE: _gpu_exporter(wanted, variable)}
    return (node if wanted.node_exporter else {}) | (gpus if wanted.dcgm_exporter else {})


def _node_exporter(wanted: Monitoring, program: str) -> str:
    service = (
        "ExecStart=",
        f"ExecStart={program} --web.listen-address={with_port(wanted.listen, wanted.port)}"
        f" --collector.textfile.directory={TEXT_FOLDER}",
        "CapabilityBoundingSet=",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX",
        *SANDBOX,
    )
    return _file({"Service": service})


def _gpu_exporter(wanted: Monitoring, variable: str) -> str:
    service = (
        f"Environment={variable}={with_port(wanted.listen, wanted.dcgm_port)}",
        # some releases do not exit when systemd asks them to: NVIDIA/dcgm-exporter 606
        "TimeoutStopSec=10",
    )
    return _file({"Service": service})


def _release_metrics() -> str:
    service = (
        "Type=oneshot",
        f"ExecStart=/usr/bin/python3 -I {PROGRAMS}/{PROGRAM} {TEXT_FILE}",
        # the folder's owner differs between Debian releases
        "CapabilityBoundingSet=CAP_DAC_OVERRIDE",
        "PrivateDevices=yes",
        "PrivateNetwork=yes",
        "PrivateTmp=yes",
        "ProtectControlGroups=yes",
        "ProtectHome=yes",
        "ProtectKernelLogs=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelTunables=yes",
        "ProtectSystem=strict",
        f"ReadWritePaths={TEXT_FOLDER}",
        "RestrictAddressFamilies=AF_UNIX",
        "UMask=0022",
        *SANDBOX,
    )
    return _file(
        {"Unit": ("Description=rigup: which release of each service runs, for Prometheus",), "Service": service}
    )


def _timer() -> str:
    return _file(
        {
            "Unit": ("Description=rigup: which release of each service runs, every half minute",),
            "Timer": ("OnActiveSec=0", "OnUnitActiveSec=30", "AccuracySec=5"),
            "Install": ("WantedBy=timers.target",),
        }
    )


def _file(sections: Mapping[str, Iterable[str]]) -> str:
    return f"# Written by rigup: monitoring in group_data\n{unit_file(sections)}"
