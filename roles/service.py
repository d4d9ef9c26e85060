"""A service as a systemd unit: its tuned kernels, its API key, its release, and the request that it must answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pyinfra.api import deploy

from rigup import layout
from rigup.errors import HostFailed, HostLost
from rigup.host import Host
from rigup.operations.primitives.text_files import text_files
from rigup.operations.service.health import NotReady, ask_after_start, ask_release
from rigup.operations.service.moe_configs import moe_folder
from rigup.operations.service.releases import GroupMembership, release
from rigup.operations.service.secrets import secret_file
from rigup.plan import BoundPlan, MoeFolder, Plan
from rigup.systemd.port_guard import TEMPLATE_FILE, is_guarded, template
from rigup.systemd.release import release_of
from roles.gpus import lost_cards, why_links_hang


@deploy("kernels")
def moe_configs(folder: MoeFolder, build: str) -> None:
    """Create the folder of tuned fused-MoE kernels that the service's environment names, outside the engine's package.

    build: the folder of the engine's build.
    """
    moe_folder(name=f"tuned kernels {folder.path.rpartition('/')[2]}", folder=folder, build=build)


def ask(host: Host, plan: Plan, given_up: Callable[[], str]) -> None:
    """Ask a service that was started. Raise like `ask_after_start`, with what its cards have to do with it.

    That is a card that is lost, as a start takes more power than the wait before, or why they may wait for each other.
    """
    try:
        ask_after_start(host, plan, given_up)
    except HostLost:
        raise
    except HostFailed as error:
        if lost := lost_cards(host, plan):
            cards, problem = "; ".join(one.message for one in lost), error.message.removeprefix(f"{host.name}: ")
            raise HostFailed(f"{host.name}: {cards}; {problem}", lost[0].hint) from None
        late = isinstance(error, NotReady) and len(plan.memory) > 1
        if late and (why := why_links_hang(host)):
            raise HostFailed(f"{error.message}; {why}", error.hint) from None
        raise


@deploy("service")
def service(
    plan: BoundPlan,
    build_name: str,
    api_key: str | None,
    restart: bool = False,
    why: str = "",
    afterwards: Callable[[Any], None] = lambda host: None,
    rebind: Callable[[Any], BoundPlan] | None = None,
    membership: GroupMembership | None = None,
) -> None:
    """Run the release of the plan's service and wait until the service answers; `restart` restarts it in any case.

    why: the problem of its current build, for the name of the step. afterwards: called with the host after the service
    has answered. rebind: returns the plan with GPU UUIDs once the driver is loaded.
    membership: this host's in a node group; only the head of a group has the API.
    """

    def check(host: Host) -> None:
        if plan.rank == 0:
            ask(host, plan, membership.given_up if membership else str)
        afterwards(host)

    if is_guarded(plan):
        text_files(
            name=f"port of {plan.service.name}: closed while it is stopped",
            files={TEMPLATE_FILE: template()},
            then=((TEMPLATE_FILE, ("systemctl", "daemon-reload")),),
        )
        key = secret_file(
            name=f"API key of {plan.service.name}",
            path=layout.api_key_file(plan.service.name),
            value=api_key,
        )
        restart = restart or key.will_change
    release(
        name=f"release of {plan.service.name}" + (f": {why}" if why else ""),
        wanted=release_of(plan, build_name),
        check=check,
        check_earlier=partial(ask_release, service=plan.service.name, wait_s=plan.start_timeout_s),
        restart=restart,
        rebind=(lambda host: release_of(rebind(host), build_name)) if rebind else None,
        part=membership,
    )
