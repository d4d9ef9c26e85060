"""keepalived's configuration and unit, for an address that gateways share by VRRP (RFC 9568). Pure.

The gateway that has the address keeps it until it dies or does not answer: an earlier one that comes back takes nothing
away from it, because each move breaks every connection.
"""

from __future__ import annotations

import hashlib

from rigup.gateway.paths import SHARED_FILE, UNIT, USER
from rigup.gateway_settings import GatewayPlan
from rigup.systemd.quoting import unit_file
from rigup.systemd.service import SANDBOX

PACKAGE = "keepalived"
PROGRAM = "/usr/sbin/keepalived"
# Of the first of several gateways; each other has one less. 255 would be for the owner of the address.
FIRST_PRIORITY = 150
DIGEST = "# configuration "
_RUNTIME_FOLDER = "rigup-gateway-address"
# It sets addresses, speaks VRRP and ARP, and runs its check as another user.
_CAPABILITIES = "CAP_NET_ADMIN CAP_NET_RAW CAP_SETUID CAP_SETGID CAP_KILL"


def keepalived_configuration(plan: GatewayPlan) -> str:
    """The whole file, for one host; ends with a newline."""
    gateway, shared = plan.gateway, plan.gateway.shared_address
    assert shared is not None
    address = "[::1]" if gateway.listen == "::" else "127.0.0.1"
    url = f"{'https' if gateway.tls else 'http'}://{address}:{gateway.port}/health"
    sections = {
        # without checks by root, and with them refused if others could change the program
        "global_defs": (f"script_user {USER}", "enable_script_security", "vrrp_version 3"),
        "vrrp_script gateway": (
            f'script "/usr/bin/curl --silent --fail --insecure --max-time 2 --output /dev/null {url}"',
            "interval 1",
            "timeout 3",
            "fall 2",
            "rise 2",
        ),
        "vrrp_instance gateway": (
            f"interface {shared.interface}",
            "state BACKUP",
            "nopreempt",
            f"virtual_router_id {shared.id}",
            f"priority {FIRST_PRIORITY - plan.sharing.index(plan.host)}",
            "advert_int 1",
            *_peers(plan),
            "virtual_ipaddress {",
            f"  {shared.address}",
            "}",
            "track_script {",
            "  gateway",
            "}",
        ),
    }
    return "# Written by rigup: gateway.shared_address in group_data\n" + "\n".join(
        f"{name} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n" for name, lines in sections.items()
    )


def _peers(plan: GatewayPlan) -> tuple[str, ...]:
    """To whom it speaks, where the inventory says it: many networks pass on no multicast."""
    if not plan.unicast:
        return ()
    own = plan.unicast[plan.sharing.index(plan.host)]
    others = (f"  {address}" for address in plan.unicast if address != own)
    return (f"unicast_src_ip {own}", "unicast_peer {", *others, "}")


def keepalived_unit(configuration: str) -> str:
    """The text of the unit. It ends with the digest of the configuration that its process has read."""
    lines = {
        "Unit": (
            "Description=rigup gateway: keepalived",
            "Wants=network-online.target",
            f"After=network-online.target {UNIT}",
            "StartLimitIntervalSec=0",
        ),
        "Service": (
            f"ExecStart={PROGRAM} --dont-fork --log-console --no-syslog --vrrp --use-file={SHARED_FILE} "
            f"--pid=/run/{_RUNTIME_FOLDER}/parent.pid --vrrp_pid=/run/{_RUNTIME_FOLDER}/vrrp.pid",
            "ExecReload=/bin/kill -HUP $MAINPID",
            "KillMode=mixed",
            "Restart=always",
            "RestartSec=1",
            f"RuntimeDirectory={_RUNTIME_FOLDER}",
            "SyslogIdentifier=rigup-gateway-address",
            *(line for line in SANDBOX if not line.startswith(("CapabilityBoundingSet=", "AmbientCapabilities="))),
            f"CapabilityBoundingSet={_CAPABILITIES}",
            "PrivateDevices=yes",
            "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK AF_PACKET",
        ),
        "Install": ("WantedBy=multi-user.target",),
    }
    digest = hashlib.sha256(configuration.encode()).hexdigest()
    return f"{unit_file(lines)}\n{DIGEST}{digest}\n"
