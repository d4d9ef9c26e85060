"""Who answers on the port of a service with a key: its unit, or nobody.

Any local user can listen on a free port, such as that of a stopped service, and would get prompts and the key from
clients and gateways. So a table of nftables refuses connections to the port unless the listening socket is in the
unit's cgroup, and all of them while the unit is stopped. A rule refers to the cgroup that exists when it is loaded,
which is why the unit loads it at every start (see systemd/nftables.py). From the boot to the first start, an instance
of a template closes the port; it runs before the network does, because the unit wants it.

Without nft the unit starts all the same, and the port is open to whatever listens.
"""

from __future__ import annotations

from rigup import layout
from rigup.plan import BoundPlan, Plan
from rigup.systemd.api_key import wants_key
from rigup.systemd.nftables import NFT, replacing
from rigup.systemd.quoting import command_line

TEMPLATE = "closed-port@"
TEMPLATE_FILE = f"/etc/systemd/system/{TEMPLATE}.service"


def is_guarded(plan: Plan) -> bool:
    """Whether the port takes a key: that of a service without one gives nothing away but what is asked."""
    return plan.rank == 0 and wants_key(plan.service)


def closing_unit(port: int) -> str:
    """The instance of the template that closes this port."""
    return f"{TEMPLATE}{port}.service"


def start_lines(plan: BoundPlan) -> tuple[str, ...]:
    """The unit's lines before its engine starts, and after it has ended; run as root outside the sandbox."""
    if not is_guarded(plan):
        return ()
    port, unit = str(plan.service.port), layout.unit_name(plan.service.name)
    foreign = f'socket cgroupv2 level 2 != "system.slice/{unit}" '
    own, nobody = (command_line((NFT, _table(port, which))) for which in (foreign, ""))
    return (f"ExecStartPre=-+{own}", f"ExecStopPost=-+{nobody}")


def template() -> str:
    """The template's text. A firewall that is loaded at boot often begins with "flush ruleset"."""
    return f"""\
# Written by rigup
[Unit]
Description=rigup: port %i is closed while its service is stopped
DefaultDependencies=no
After=local-fs.target nftables.service
Wants=network-pre.target
Before=network-pre.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=-{NFT} "{_table("%i", "")}"
ExecStop=-{NFT} "delete table {_name("%i")}"
"""


def _name(port: str) -> str:
    return f"inet port_{port}"


def _table(port: str, which: str) -> str:
    """What nft executes to replace the table in one step. which: sockets that are refused; "" for every one."""
    return replacing(_name(port), f"tcp dport {port} tcp flags & (syn | ack) == syn {which}reject with tcp reset")
