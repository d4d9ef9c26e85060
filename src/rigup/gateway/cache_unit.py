"""The units beside a gateway that routes by prefix: smg, and a firewall around the ports between it and HAProxy. Pure.

smg has an API without a key by which backends are added, and behind its addresses HAProxy adds the engines' keys. So
these ports on loopback take connections of root, HAProxy and smg, and of no other user of the host.
"""

from __future__ import annotations

from rigup.artifacts import LockedSmg
from rigup.gateway.cache_aware import GRACE_SECONDS, cached_routes, smg_command
from rigup.gateway.paths import CACHE_PROGRAM, PORTS_UNIT, SMG_FOLDER, SMG_USER, UNIT, USER
from rigup.gateway_settings import GatewayPlan
from rigup.layout import PROGRAMS
from rigup.systemd.nftables import NFT, replacing
from rigup.systemd.quoting import command_line, unit_file
from rigup.systemd.service import SANDBOX

TABLE = "inet rigup_gateway_cache"


def smg_folder(locked: LockedSmg) -> str:
    """Where this release is on a host."""
    return f"{SMG_FOLDER}/{locked.version}"


def smg_unit(plan: GatewayPlan, locked: LockedSmg) -> str:
    """The text of smg's unit. It begins after HAProxy, which it asks for its backends."""
    command = ("/usr/bin/python3", "-I", f"{PROGRAMS}/{CACHE_PROGRAM}", smg_folder(locked), *smg_command(plan))
    # what HAProxy tells it when it starts, so that another name is a restart
    models = "".join(f"# serves {route.model}\n" for route in cached_routes(plan))
    return models + unit_file(
        {
            "Unit": (
                f"Description=rigup gateway: smg {locked.version}",
                f"Requires={PORTS_UNIT}",
                f"After={PORTS_UNIT} {UNIT}",
                "StartLimitIntervalSec=0",
            ),
            "Service": (
                f"User={SMG_USER}",
                f"Group={SMG_USER}",
                f"ExecStart={command_line(command)}",
                "Environment=PYTHONDONTWRITEBYTECODE=1",
                # it answers what it has begun
                f"TimeoutStopSec={GRACE_SECONDS + 10}",
                "Restart=always",
                "RestartSec=1",
                "SyslogIdentifier=rigup-gateway-cache",
                *SANDBOX,
                "PrivateDevices=yes",
                "PrivateUsers=yes",
                "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
                "IPAddressDeny=any",
                "IPAddressAllow=localhost",
            ),
            "Install": ("WantedBy=multi-user.target",),
        }
    )


def ports_unit(plan: GatewayPlan) -> str:
    """The text of the unit that closes the ports to other users. A firewall often begins with "flush ruleset"."""
    port = plan.gateway.cache_port
    refuse = (
        f"ip daddr 127.0.0.0/8 tcp dport {{ {port}, {port + 1} }} tcp flags & (syn | ack) == syn "
        f"meta skuid != {{ root, {USER}, {SMG_USER} }} reject with tcp reset"
    )
    return unit_file(
        {
            "Unit": (
                "Description=rigup gateway: the ports between HAProxy and smg are closed to other users",
                "After=nftables.service",
                f"Before={UNIT}",
            ),
            "Service": (
                "Type=oneshot",
                "RemainAfterExit=yes",
                f"ExecStart={command_line((NFT, replacing(TABLE, refuse, hook='output')))}",
                f"ExecStop=-{command_line((NFT, f'delete table {TABLE}'))}",
            ),
            "Install": (f"WantedBy=multi-user.target {UNIT}",),
        }
    )
