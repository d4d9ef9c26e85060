"""Restores the firewall table of a running service after a flush."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup import layout
from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.steps import step
from rigup.plan import BoundPlan
from rigup.systemd.nftables import NFT, load, table


class OpenServices(FactBase[bool]):
    """Whether a service runs without its table. `nft -f` of a file that begins with "flush ruleset" deletes tables."""

    default = bool

    def command(self, service: str) -> str:
        there = f"{NFT} list chain {table(service)} input >/dev/null 2>&1"
        return f"! systemctl is-active --quiet {layout.unit_name(service)} || {there} || echo open"

    def process(self, output: list[str]) -> bool:
        return "open" in output


@operation()
def closed_to_others(plan: BoundPlan) -> Generator[FunctionCommand, None, None]:
    """Ensures that a running service has its firewall table; a stopped one loads it when it starts."""
    if not host.get_fact(OpenServices, service=plan.service.name):
        host.noop(f"the internal ports of {plan.service.name} are closed to others")
        return
    yield step(_load, plan)


def _load(host: Host, plan: BoundPlan) -> None:
    loaded = remote.run(host, *load(plan))
    if not loaded.ok:
        raise HostFailed(f"{host.name}: cannot load the firewall of {plan.service.name}: {loaded.last_line}")
