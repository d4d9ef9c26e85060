"""The services' ports for the LAN alone: `lan_only = "10.0.0.0/24"` in group_data. Needs nftables on the host."""

from io import StringIO

from pyinfra.operations import files, server

from rigup.api import RoleHost, after

PATH = "/etc/nftables.d/lan_only.nft"


@after
def lan_only(host: RoleHost) -> None:
    """Drops packets to the services' ports that come neither from the LAN nor from the host itself."""
    network = host.data.get("lan_only")
    ports = ", ".join(sorted({str(plan.service.port) for plan in host.plans}))
    if not network or not ports:
        return
    rules = (
        "table inet lan_only\ndelete table inet lan_only\ntable inet lan_only {\n  chain input {\n"
        "    type filter hook input priority -5;\n"
        f'    iifname != "lo" ip saddr != {network} tcp dport {{ {ports} }} drop\n  }}\n}}\n'
    )
    written = files.put(name="rules for the LAN", src=StringIO(rules), dest=PATH, mode="644")
    server.shell(name="load the rules for the LAN", commands=[f"nft -f {PATH}"], _if=written.did_change)
