"""One address for the models of the fleet: HAProxy with the routes that the plan decided."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import deploy

from rigup.errors import HostFailed, InputError
from rigup.facts.probe import Probe
from rigup.operations.gateway.removal import no_gateway
from rigup.settings import Gateway, GatewayPlan, GatewaySettings

EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  compared only


@deploy("gateway")
def gateway(wanted: GatewaySettings | None, probe: Probe) -> None:
    """Run the gateway, or stop and remove one that rigup installed earlier."""
    if wanted is None:
        no_gateway(name="no gateway")
        return
    # hosts without a gateway need none of it
    from rigup.gateway.files import files_of
    from rigup.gateway.inventory import check_system
    from rigup.operations.gateway.placement import installed_haproxy, running_gateway

    try:
        check_system("gateway", probe.os)
    except InputError as error:
        raise HostFailed(f"{host.name}: {error.message}", error.hint) from None
    installed_haproxy(name="haproxy")
    models = ", ".join(wanted.plan.models) or "nothing yet"
    running_gateway(name=f"gateway for {models}", files=files_of(wanted), urls=_urls(wanted.plan.gateway))
    _shared_address(wanted.plan)


def _shared_address(plan: GatewayPlan) -> None:
    from rigup.gateway.keepalived import keepalived_configuration, keepalived_unit
    from rigup.operations.gateway.shared_address import installed_keepalived, no_shared_address, shared_address

    shared = plan.gateway.shared_address
    if shared is None:
        no_shared_address(name="no shared address")
        return
    installed_keepalived(name="keepalived")
    configuration = keepalived_configuration(plan)
    ((url, _), *_) = _urls(plan.gateway.model_copy(update={"listen": shared.host}))
    unit = keepalived_unit(configuration)
    shared_address(
        name=f"shared address {shared.host}",
        interface=shared.interface,
        configuration=configuration,
        unit=unit,
        url=url,
    )


def _urls(wanted: Gateway) -> tuple[tuple[str, str], ...]:
    """What must be answered, with the status: nobody gets a list of models without a key."""
    listen = EVERY_ADDRESS.get(wanted.listen) or (f"[{wanted.listen}]" if ":" in wanted.listen else wanted.listen)
    address = f"{'https' if wanted.tls else 'http'}://{listen}:{wanted.port}"
    return (f"{address}/health", "200"), (f"{address}/v1/models", "401" if wanted.clients else "200")
