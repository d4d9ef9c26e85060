"""The gateways of a fleet on disk: what each offers, and its secrets, which are read from files of the user's."""

from __future__ import annotations

import hashlib
import shlex
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from rigup.artifacts import LockedSmg
from rigup.errors import InputError
from rigup.gateway.cache_aware import cached_routes
from rigup.gateway.inventory import check_ports, read_gateway
from rigup.gateway.routes import plan_gateway, with_sharing
from rigup.gateway_settings import Gateway, GatewayPlan, GatewaySettings
from rigup.lock import load_lock
from rigup.plain_values import quoted
from rigup.plan import Monitoring, Plan
from rigup.project.inventory import HostEntry, Project
from rigup.project.planning import plan_project
from rigup.project.settings import read_secret
from rigup.regular_files import read_text, user_path
from rigup.settings import HostSettings

SHORTEST_KEY = 16
_OWN_KEY = "make one: openssl rand -hex 32"


def plan_gateways(project: Project, plans: Iterable[Plan]) -> tuple[GatewayPlan, ...]:
    """What each gateway of the project offers; () without one. plans: those of the project's hosts.

    A gateway offers services of the whole inventory, so that hosts which the project leaves out are planned, too.
    Raises InputError naming the file and key that is wrong.
    """
    gateways = [host for host in project.hosts if host.data.get("gateway") is not None]
    if not gateways:
        return ()
    fleet = tuple(plans) if project.hosts == project.everyone else plan_fleet(project)
    addresses = {host.name: address_of(host) for host in project.everyone}
    plans_of_gateways = tuple(_plan(host, fleet, addresses) for host in gateways)
    if not any(plan.gateway.shared_address for plan in plans_of_gateways):
        return plans_of_gateways
    return _with_sharing(project, plans_of_gateways, fleet, addresses)


def plan_fleet(project: Project) -> tuple[Plan, ...]:
    """The plans of every host of the inventory, whatever --limit says."""
    return plan_project(project._replace(hosts=project.everyone, whole=()))


def address_of(host: HostEntry) -> str:
    """Where other hosts reach this one, as far as the inventory says it."""
    return str(host.data.get("lan_address") or host.data.get("ssh_hostname") or host.name.rpartition("@")[2])


def _with_sharing(
    project: Project, plans: tuple[GatewayPlan, ...], fleet: tuple[Plan, ...], addresses: Mapping[str, str]
) -> tuple[GatewayPlan, ...]:
    """The plans with the gateways that share an address, those that the project leaves out among them.

    Raises InputError where one shares it with nobody, or with a gateway that offers something else.
    """
    planned = {plan.host: plan for plan in plans}
    gateways = {host.name: host for host in project.everyone if host.data.get("gateway") is not None}
    everyone = [planned.get(host.name) or _plan(host, fleet, addresses) for host in gateways.values()]
    return tuple(with_sharing(plan, everyone, _where(gateways[plan.host]), addresses) for plan in plans)


def _where(host: HostEntry) -> str:
    """The path to a gateway's settings, for messages."""
    return f"{host.origins['gateway']}: gateway"


def _plan(host: HostEntry, fleet: tuple[Plan, ...], addresses: Mapping[str, str]) -> GatewayPlan:
    where = _where(host)
    rig, said = host.data.get("rig"), host.data.get("monitoring")
    gateway = read_gateway(host.data["gateway"], where, rig.get("os") if isinstance(rig, dict) else None)
    own = [plan.service for plan in fleet if plan.host == host.name]
    check_ports(gateway, where, own, Monitoring(**said) if isinstance(said, dict) else None)
    return plan_gateway(gateway, where, host.name, host.group, fleet, addresses)


def with_gateways(
    project: Project, plans: Mapping[str, tuple[Plan, ...]], settings: Mapping[str, HostSettings]
) -> dict[str, HostSettings]:
    """The settings of every host, with what it offers as a gateway."""
    found = dict(settings)
    for plan in plan_gateways(project, [plan for host in project.hosts for plan in plans[host.name]]):
        found[plan.host] = replace(found[plan.host], gateway=_settings(project, plan))
    return found


def _settings(project: Project, plan: GatewayPlan) -> GatewaySettings:
    """A gateway with its secrets.

    Raises InputError for files that are missing, readable by others, or hold a key that is too short or used twice.
    """
    host = next(host for host in project.hosts if host.name == plan.host)
    where, gateway = _where(host), plan.gateway
    backends = {
        route.model: read_secret(project.root, f"{where}: the key of {route.model}", route.key_file)
        for route in plan.routes
        if route.key_file is not None
    }
    clients: dict[str, str] = {}
    for name, client in gateway.clients.items():
        key = read_secret(project.root, f"{where}.clients.{name}.key_file", client.key_file)
        if len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
            raise InputError(
                f"{where}.clients.{name}.key_file: {client.key_file} must hold at least {SHORTEST_KEY} ASCII "
                "characters without spaces",
                _OWN_KEY,
            )
        clients[name] = key
    _check_distinct(clients, backends, where)
    digests = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in clients.items()}
    return GatewaySettings(plan, digests, backends, _certificate(project, gateway, where), _smg(project, plan, where))


def _smg(project: Project, plan: GatewayPlan, where: str) -> LockedSmg | None:
    """The locked smg, if the gateway has a choice to make. Raises InputError if the lock has none."""
    if not cached_routes(plan):
        return None
    locked = load_lock(project.lock_path).smg
    if locked is None:
        raise InputError(f"{where}.kind: smg is not in rigup.lock", "run: rigup lock")
    return locked


def _check_distinct(clients: Mapping[str, str], backends: Mapping[str, str], where: str) -> None:
    owner = {key: f"the services that serve {model}" for model, key in backends.items()}
    for name, key in clients.items():
        if key in owner:
            raise InputError(f"{where}.clients.{name}.key_file: has the same key as {owner[key]}", _OWN_KEY)
        owner[key] = f"clients.{name}"


def _certificate(project: Project, gateway: Gateway, where: str) -> str | None:
    """The certificate with its chain, and its key, in one text, as HAProxy reads them."""
    if gateway.tls is None or gateway.tls.acme:
        return None
    files = {"certificate_file": gateway.tls.certificate_file, "key_file": gateway.tls.key_file}
    paths, parts = {}, []
    for key, name in files.items():
        path = project.root / user_path(name, f"{where}.tls.{key}")
        text = read_text(path, f"{where}.tls.{key}: {name}")
        kind = "CERTIFICATE" if key == "certificate_file" else "PRIVATE KEY"
        if f"{kind}-----" not in text:
            raise InputError(
                f"{where}.tls.{key}: {quoted(name)} does not contain a {kind.lower()} in PEM", "name a .pem file"
            )
        if key == "key_file" and path.stat().st_mode & 0o077:
            raise InputError(f"{where}.tls.{key}: {name} is readable by other users", f"chmod 600 {name}")
        paths[key] = path
        parts.append(text.strip())
    _check_pair(paths, files, where)
    return "\n".join(parts) + "\n"


def _check_pair(paths: Mapping[str, Path], names: Mapping[str, str], where: str) -> None:
    """Raises InputError unless the key can be read and belongs to the certificate. HAProxy would find that out late.

    paths, names: of both files, by their keys in gateway.tls.
    """
    certificate_name, key_name = names["certificate_file"], names["key_file"]

    def password() -> str:
        raise InputError(
            f"{where}.tls.key_file: {key_name} is encrypted, and nobody types a passphrase at the gateway",
            f"write it without one: openssl pkey -in {shlex.quote(key_name)} -out NEW",
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # how strong it must be is up to the gateway's system
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    try:
        context.load_cert_chain(paths["certificate_file"], paths["key_file"], password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InputError(
                f"{where}.tls.key_file: {key_name} is not the key of the first certificate in {certificate_name}",
                "name the key that it was made with, and a file that begins with the certificate and goes on with "
                "its chain",
            ) from None
        raise InputError(
            f"{where}.tls: OpenSSL cannot read {certificate_name} with {key_name}",
            f"look at both: openssl x509 -noout -text -in {shlex.quote(certificate_name)}; "
            f"openssl pkey -noout -check -in {shlex.quote(key_name)}",
        ) from None
