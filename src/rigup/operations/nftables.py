"""The table of a service that runs, put back where somebody has flushed it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup import layout
from rigup.errors import HostFailed
from rigup.operations import remote
from rigup.operations.steps import step
from rigup.plan import Plan
from rigup.render.nftables import NFT, load, table


class OpenServices(FactBase[bool]):
    """Whether a service runs without its table. `nft -f` of a file that begins with "flush ruleset" takes it away."""

    @staticmethod
    def default() -> bool:
        return False

    def command(self, service: str) -> str:
        there = f"{NFT} list chain {table(service)} input >/dev/null 2>&1"
        return f"! systemctl is-active --quiet {layout.unit_name(service)} || {there} || echo open"

    def process(self, output: list[str]) -> bool:
        return "open" in output


@operation()
def closed_to_others(plan: Plan) -> Generator[FunctionCommand, None, None]:
    """Have the table of a service loaded where it runs; one that does not run loads it when it starts.

    + plan: with addresses
    """
    if not host.get_fact(OpenServices, service=plan.service.name):
        host.noop(f"what {plan.service.name} opens to its hosts is closed to others")
        return
    yield step(_load, plan)


def _load(host: Any, plan: Plan) -> None:
    said = remote.ask(host, *load(plan))
    if not said.ok:
        raise HostFailed(f"{host.name}: the firewall of {plan.service.name} cannot be loaded: {said.last_line}")
