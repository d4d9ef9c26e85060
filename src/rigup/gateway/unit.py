"""The systemd unit of a gateway: HAProxy without root, with nothing but its own folder. Pure."""

from __future__ import annotations

from rigup.gateway.haproxy import MOST_CONNECTIONS
from rigup.gateway.paths import CONFIGURATION_FILE, RUNTIME_FOLDER, USER
from rigup.gateway_settings import Gateway
from rigup.systemd.quoting import unit_file
from rigup.systemd.service import SANDBOX
from rigup.units import MIB

PROGRAM = "/usr/sbin/haproxy"
FIRST_FREE_PORT = 1024
# HAProxy allocates its buffers for each request, and glibc would take large ones from the kernel and back each time.
ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(256 * MIB),
    "MALLOC_TRIM_THRESHOLD_": str(256 * MIB),
}
_CAPABILITIES = ("CapabilityBoundingSet=", "AmbientCapabilities=")


def gateway_unit(gateway: Gateway) -> str:
    """The text of the unit. A reload starts new processes that take over the sockets; old ones finish their streams."""
    low = gateway.port < FIRST_FREE_PORT or gateway.acme is not None
    capabilities = [f"{line}CAP_NET_BIND_SERVICE" if low else line for line in _CAPABILITIES]
    lines = {
        "Unit": (
            "Description=rigup gateway: HAProxy",
            "Wants=network-online.target",
            "After=network-online.target",
            "StartLimitIntervalSec=0",
        ),
        "Service": (
            "Type=notify",
            f"User={USER}",
            f"Group={USER}",
            f"ExecStartPre={PROGRAM} -q -c -f {CONFIGURATION_FILE}",
            f"ExecStart={PROGRAM} -Ws -f {CONFIGURATION_FILE}",
            f"ExecReload={PROGRAM} -q -c -f {CONFIGURATION_FILE}",
            "ExecReload=/bin/kill -USR2 $MAINPID",
            *(f"Environment={name}={value}" for name, value in ENVIRONMENT.items()),
            "KillMode=mixed",
            "KillSignal=SIGUSR1",
            # streams may end before it does
            "TimeoutStopSec=120",
            "Restart=always",
            "RestartSec=1",
            "SuccessExitStatus=143",
            f"LimitNOFILE={2 * MOST_CONNECTIONS + 1000}",
            f"RuntimeDirectory={RUNTIME_FOLDER}",
            "RuntimeDirectoryMode=0750",
            "StandardOutput=journal",
            "StandardError=journal",
            "SyslogIdentifier=rigup-gateway",
            *(line for line in SANDBOX if line not in _CAPABILITIES),
            *capabilities,
            "PrivateDevices=yes",
            *(() if low else ("PrivateUsers=yes",)),
            "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
        ),
        "Install": ("WantedBy=multi-user.target",),
    }
    return unit_file(lines)
