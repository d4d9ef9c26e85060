"""One address for the models of the fleet: HAProxy with the routes that the plan decided."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import deploy

from rigup import layout
from rigup.artifacts import LockedSmg
from rigup.errors import HostFailed, InputError
from rigup.facts.probe import Probe
from rigup.gateway.acme import PACKAGE as CERTBOT
from rigup.gateway.acme import certificate_units
from rigup.gateway.cache_aware import ports_unit, smg_unit
from rigup.gateway.files import files_of
from rigup.gateway.inventory import check_system
from rigup.gateway.keepalived import PACKAGE as KEEPALIVED
from rigup.gateway.keepalived import keepalived_configuration, keepalived_unit
from rigup.gateway.paths import (
    ACME_STATE,
    ACME_USER,
    CACHE_PROGRAM,
    CERTIFICATE_PROGRAM,
    PORTS_UNIT_FILE,
    SMG_UNIT_FILE,
    SMG_USER,
)
from rigup.gateway_settings import Gateway, GatewayPlan, GatewaySettings
from rigup.operations.apt.packages import debian_packages
from rigup.operations.gateway.certificate import CERTIFICATE, acme_certificate
from rigup.operations.gateway.placement import installed_haproxy, running_gateway
from rigup.operations.gateway.prefix_routing import PREFIX_ROUTING, installed_smg, running_smg, smg_ready_for
from rigup.operations.gateway.shared_address import SHARED_ADDRESS, shared_address
from rigup.operations.primitives import root_files
from rigup.operations.primitives.removal import removed_part
from rigup.operations.primitives.users import system_user
from rigup.operations.service.health import local_address
from rigup.programs import program_file
from rigup.settings import PackageSource
from rigup.systemd.nftables import PACKAGE as NFTABLES


@deploy("gateway")
def gateway(wanted: GatewaySettings, probe: Probe, source: PackageSource) -> None:
    """Run the gateway."""
    try:
        check_system("gateway", probe.os)
    except InputError as error:
        raise HostFailed(f"{host.name}: {error.message}", error.hint) from None
    installed_haproxy(name="haproxy")
    smg = _smg_units(wanted)
    if wanted.smg:
        _prepare_smg(smg, wanted.smg, probe, source)
    _certificate(wanted.plan.gateway)
    models = ", ".join(wanted.plan.models) or "nothing yet"
    running_gateway(name=f"gateway for {models}", files=files_of(wanted), urls=_urls(wanted.plan.gateway))
    if wanted.plan.gateway.acme is None:
        removed_part(name="no certificate by ACME", part=CERTIFICATE)
    if smg:
        running_smg(name="routing by prefix", units=smg, port=wanted.plan.gateway.cache_port)
    else:
        removed_part(name="no routing by prefix", part=PREFIX_ROUTING)
    _shared_address(wanted.plan)


def _certificate(wanted: Gateway) -> None:
    """Comes before HAProxy, whose configuration names it: without one, the gateway stays as it was."""
    if wanted.acme is None:
        return
    system_user(
        name=f"user {ACME_USER}", user=ACME_USER, description="rigup certbot, obtains certificates", home=ACME_STATE
    )
    sources = (program_file(CERTIFICATE_PROGRAM),)
    root_files.programs(name="certificate's program", folder=layout.PROGRAMS, sources=sources)
    debian_packages({CERTBOT})  # its own timer renews what others have obtained
    names = ", ".join(wanted.acme.domains)
    units = certificate_units(wanted, wanted.acme)
    acme_certificate(name=f"certificate for {names}", units=units, directory=wanted.acme.directory)


def _smg_units(wanted: GatewaySettings) -> dict[str, str]:
    """The texts of smg's units by path; {} for a gateway without it."""
    if wanted.smg is None:
        return {}
    return {SMG_UNIT_FILE: smg_unit(wanted.plan, wanted.smg), PORTS_UNIT_FILE: ports_unit(wanted.plan)}


def _prepare_smg(units: dict[str, str], locked: LockedSmg, probe: Probe, source: PackageSource) -> None:
    """What comes before HAProxy: nobody else reaches the ports, and no smg has backends of the past."""
    program = program_file(CACHE_PROGRAM)
    debian_packages({NFTABLES})
    system_user(name=f"user {SMG_USER}", user=SMG_USER, description="rigup smg, routes by prefix", home="/nonexistent")
    root_files.programs(name="smg's program", folder=layout.PROGRAMS, sources=(program,))
    installed_smg(name=f"smg {locked.version}", locked=locked, architecture=probe.architecture, source=source)
    smg_ready_for(name="backends of smg", units=units)


def _shared_address(plan: GatewayPlan) -> None:
    shared = plan.gateway.shared_address
    if shared is None:
        removed_part(name="no shared address", part=SHARED_ADDRESS)
        return
    debian_packages({KEEPALIVED})  # its own service has no configuration, and stays off
    configuration = keepalived_configuration(plan)
    ((url, _), *_) = _urls(plan.gateway.model_copy(update={"listen": shared.host}))
    shared_address(
        name=f"shared address {shared.host}",
        interface=shared.interface,
        configuration=configuration,
        unit=keepalived_unit(configuration),
        url=url,
    )


def _urls(wanted: Gateway) -> tuple[tuple[str, str], ...]:
    """What must be answered, with the status: nobody gets a list of models without a key."""
    address = local_address(wanted.listen, wanted.port, tls=wanted.tls is not None)
    return (f"{address}/health", "200"), (f"{address}/v1/models", "401" if wanted.clients else "200")
