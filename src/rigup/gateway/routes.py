"""Which backends serve which model behind a gateway, from the plans of the whole fleet. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence

from rigup.errors import InputError
from rigup.gateway.cache_aware import MOST
from rigup.gateway_settings import CACHE_AWARE, Backend, Gateway, GatewayPlan, Route, SharedAddress
from rigup.plain_values import quoted
from rigup.plan import Plan
from rigup.planner.inputs.validation import suggestion
from rigup.systemd.api_key import is_loopback, wants_key

# What HAProxy's configuration, a map file and JSON can all hold as it is.
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
# Engines may take IPv6 only at "::", as uvicorn does.
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  compared only

_FEWER = "name fewer services in gateway.services, or leave kind out"


def plan_gateway(
    gateway: Gateway, where: str, host: str, group: str, plans: Iterable[Plan], addresses: Mapping[str, str]
) -> GatewayPlan:
    """The routes of a gateway on `host`.

    where: the path to the gateway's settings, for messages. plans: of every host of the fleet. addresses: at which
    other hosts reach each of them.
    Raises InputError for names that fit nothing, and for services that the gateway cannot reach or has no key for.
    """
    there = [each for plan in plans if not plan.rank for each in plan.members or (plan,)]
    known = {name for plan in there for name in _names(plan)}
    for key, names in (("services", gateway.services or ()), ("weights", gateway.weights)):
        for name in names:
            if name not in known:
                raise InputError(
                    f"{where}.{key}: {quoted(name)} is neither a group with services nor one of its services",
                    suggestion(name, known) if known else "add a service to the inventory",
                )
    wanted = [plan for plan in there if gateway.services is None or {*_names(plan)} & {*gateway.services}]
    by_model: dict[str, list[Plan]] = {}
    for plan in wanted:
        if plan.verdict == "ok":
            by_model.setdefault(plan.served_name, []).append(plan)
    if not wanted:
        raise InputError(f"{where}: no host of this inventory has a service to offer", "add a service to a group")
    routes = tuple(_route(gateway, where, host, model, serving, addresses) for model, serving in by_model.items())
    found = GatewayPlan(host=host, group=group, gateway=gateway, routes=routes)
    if gateway.kind == CACHE_AWARE and (len(routes) > MOST or any(len(route.backends) > MOST for route in routes)):
        raise InputError(f"{where}.kind: smg gets at most {MOST} models, and {MOST} backends of each", _FEWER)
    _check_clients(found, where, refused=len(wanted) > sum(map(len, by_model.values())))
    return found


def _names(plan: Plan) -> tuple[str, str]:
    return plan.group, f"{plan.group}/{plan.service.name}"


def _route(
    gateway: Gateway, where: str, host: str, model: str, plans: Sequence[Plan], addresses: Mapping[str, str]
) -> Route:
    if not _MODEL_NAME.fullmatch(model):
        raise InputError(
            f"{where}: {_names(plans[0])[1]} is called {quoted(model)}, which a gateway cannot route",
            'set served_name to letters, digits and "._:/@+-", at most 128 characters',
        )
    with_key = [plan for plan in plans if wants_key(plan.service)]
    for plan in with_key:
        if plan.service.api_key_file is None:
            raise InputError(
                f"{where}: {_names(plan)[1]} generates its own API key, which the gateway does not have",
                f'set services.{plan.service.name}.api_key_file = "secrets/backends.key" in its group',
            )
    files = dict.fromkeys(plan.service.api_key_file for plan in with_key)
    if len(files) > 1:
        raise InputError(
            f"{where}: the services that serve {model} have different keys: {', '.join(map(str, files))}",
            "give them the same api_key_file, or different served_names",
        )
    backends = tuple(_backend(gateway, where, host, plan, addresses) for plan in plans)
    return Route(model=model, backends=backends, key_file=next(iter(files), None))


def _backend(gateway: Gateway, where: str, host: str, plan: Plan, addresses: Mapping[str, str]) -> Backend:
    service, build = plan.service, plan.build
    assert build is not None
    if is_loopback(service.listen) and plan.host != host:
        raise InputError(
            f"{where}: {host} cannot reach {_names(plan)[1]} on {plan.host}, which listens on {service.listen}",
            f'set services.{service.name}.listen = "0.0.0.0" with an api_key_file, or name what to offer in '
            "gateway.services",
        )
    if service.listen not in _EVERY_ADDRESS:
        address = service.listen
    else:
        address = _EVERY_ADDRESS[service.listen] if plan.host == host else addresses[plan.host]
    quant = f", {plan.checkpoint.quant}" if plan.checkpoint else ""
    group, name = _names(plan)
    return Backend(
        host=plan.host,
        group=group,
        service=service.name,
        address="127.0.0.1" if address == "localhost" else address,
        port=service.port,
        health_path=plan.health_path,
        weight=gateway.weights.get(name, gateway.weights.get(group, 1)),
        engine=f"{build.engine} {build.version}{quant}",
        wants_key=wants_key(service),
    )


def with_sharing(
    plan: GatewayPlan, everyone: Sequence[GatewayPlan], where: str, addresses: Mapping[str, str]
) -> GatewayPlan:
    """The plan with the gateways that may hold its shared address, itself among them, if it has one.

    everyone: the gateways of the inventory, in its order. where: the path to this one's settings, for messages.
    addresses: of each host. Raises InputError for what cannot be shared.
    """
    shared = plan.gateway.shared_address
    if shared is None:
        return plan
    for other in everyone:
        theirs = other.gateway.shared_address
        if theirs and theirs.host != shared.host and theirs.id == shared.id:
            raise InputError(
                f"{where}.shared_address.id: {shared.id} is taken by {other.host} for {theirs.host}",
                "set another id, 1 to 255, for one of the addresses",
            )
    if taken := [host for host, address in addresses.items() if address == shared.host]:
        raise InputError(
            f"{where}.shared_address.address: {shared.host} is the address of {taken[0]}",
            "choose an address that no host has",
        )
    found = [other for other in everyone if (one := other.gateway.shared_address) and one.host == shared.host]
    if len(found) < 2:
        raise InputError(
            f"{where}.shared_address: only {plan.host} has this address",
            "add another gateway to the group, or leave shared_address out",
        )
    for other in found:
        if other.gateway != plan.gateway:
            raise InputError(
                f"{where}: differs from the gateway of {other.host}, although both share {shared.host}",
                "put both hosts into one group",
            )
    sharing = tuple(other.host for other in found)
    return plan.model_copy(update={"sharing": sharing, "unicast": _unicast(shared, sharing, addresses)})


def _unicast(shared: SharedAddress, sharing: Iterable[str], addresses: Mapping[str, str]) -> tuple[str, ...]:
    """Where gateways that share an address reach each other; () unless the inventory has one of each in that network.

    Others may be of another interface, or names, which keepalived does not take.
    """
    network = ipaddress.ip_interface(shared.address).network
    found = tuple(addresses[name] for name in sharing)
    return found if all(_is_in(address, network) for address in found) else ()


def _is_in(address: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    try:
        return ipaddress.ip_address(address) in network
    except ValueError:
        return False


def _check_clients(plan: GatewayPlan, where: str, refused: bool) -> None:
    """Raises InputError for a client's model that nobody serves. refused: whether some services do not fit."""
    for name, client in plan.gateway.clients.items():
        for model in client.models or ():
            if model not in plan.models and not refused:
                raise InputError(
                    f"{where}.clients.{name}.models: no service here serves {quoted(model)}",
                    suggestion(model, plan.models),
                )
