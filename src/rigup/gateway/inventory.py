"""Reads `gateway = ...` from group_data. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from rigup.errors import InputError
from rigup.gateway.acme import HTTP
from rigup.gateway.paths import ACME_PORT
from rigup.gateway_settings import CACHE_AWARE, Acme, Certificate, Gateway, GatewayClient, SharedAddress
from rigup.plain_values import quoted
from rigup.plan import Monitoring
from rigup.planner.inputs.rig_and_services import check_listen
from rigup.planner.inputs.validation import check_keys, validated
from rigup.rig import SUPPORTED_OS
from rigup.service import Service
from rigup.systemd.api_key import is_loopback
from rigup.units import Frozen

# The first HAProxy that has all that the configuration uses is 2.6; Ubuntu 22.04 has 2.4.
UNSUPPORTED_OS = ("ubuntu-22.04",)
_EXAMPLE = 'write gateway = {}, or with settings: gateway = {"listen": "10.0.0.2", "clients": {...}}'
_CLIENT = 'write it like clients = {"team-a": {"key_file": "secrets/team-a.key"}}'
_SHARED = 'write it like shared_address = {"address": "10.0.0.5/24", "interface": "eth0"}'
_CERTIFICATE = 'write it like tls = {"certificate_file": "secrets/gateway.crt", "key_file": "secrets/gateway.key"}'

_ACME = 'write it like tls = {"acme": {"domains": ["llm.example.org"], "email": "admin@example.org"}}'
_DOMAIN = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
LONGEST_DOMAIN = 253


def read_gateway(data: object, where: str, os: str | None = None) -> Gateway:
    """Reads `gateway = ...`. where: the path to it, for messages. os: of its host, if the rig says it.

    Raises InputError, whose message begins with the path to the value.
    """
    data = _table(data, Gateway, where, _EXAMPLE)
    _check_parts(data, where)
    gateway = validated(Gateway, data, where)
    for key, listen in (("listen", gateway.listen), ("metrics_listen", gateway.metrics_listen)):
        check_listen(listen, f"{where}.{key}")
    if not gateway.clients and not is_loopback(gateway.listen):
        raise InputError(f"{where}.clients: missing: anyone who reaches {gateway.listen} could use it", _CLIENT)
    taken: dict[int, str] = {}
    for key, port in _ports(gateway):
        if port in taken:
            raise InputError(f"{where}.{key}: {port} is taken by gateway.{taken[port]}", "choose another port")
        taken[port] = key
    if gateway.acme:
        _check_acme(gateway, gateway.acme, f"{where}.tls.acme")
    if gateway.shared_address:
        _check_shared(gateway, gateway.shared_address, where)
    check_system(where, os)
    return gateway


def _check_shared(gateway: Gateway, shared: SharedAddress, where: str) -> None:
    where_shared = f"{where}.shared_address"
    try:
        address = ipaddress.ip_interface(shared.address)
    except ValueError:
        address = None
    if address is None or not re.fullmatch(r"[0-9A-Fa-f.:]+/[0-9]{1,3}", shared.address):
        raise InputError(
            f"{where_shared}.address: {quoted(shared.address)} is not an address with its network's prefix", _SHARED
        )
    if address.ip.is_loopback or address.ip.is_multicast or address.ip.is_unspecified:
        raise InputError(
            f"{where_shared}.address: {quoted(shared.address)} cannot be held on a network",
            "choose a free address of the gateways' network",
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}", shared.interface):
        raise InputError(
            f"{where_shared}.interface: {quoted(shared.interface)} is not the name of an interface",
            "list them on the gateways: ip -brief address",
        )
    every = "::" if address.version == 6 else "0.0.0.0"  # noqa: S104  what it must be, beside clients with keys
    if gateway.listen != every:
        raise InputError(
            f"{where}.listen: {gateway.listen} does not take requests to {shared.host}, which moves between gateways",
            f'set listen = "{every}"',
        )


def check_system(where: str, os: str | None) -> None:
    """Raises InputError if the HAProxy of this system is too old."""
    if os in UNSUPPORTED_OS:
        raise InputError(
            f"{where}: needs HAProxy 2.6, which {os} does not have",
            f"use {' or '.join(known for known in SUPPORTED_OS if known not in UNSUPPORTED_OS)} for the gateway",
        )


def check_ports(
    gateway: Gateway, where: str, services: Iterable[Service], monitoring: Monitoring | None = None
) -> None:
    """Raises InputError if another part of the same host has a port of the gateway."""
    taken = {service.port: f"services.{service.name}" for service in services}
    taken |= {port: f"monitoring.{key}" for key, port in (monitoring.listeners if monitoring else {}).items()}
    for key, port in _ports(gateway):
        if port in taken:
            raise InputError(f"{where}.{key}: {port} is taken by {taken[port]}", "choose another port")


def _ports(gateway: Gateway) -> tuple[tuple[str, int], ...]:
    """The ports that a gateway listens on, by key; smg has two."""
    own: tuple[tuple[str, int], ...] = (("port", gateway.port), ("metrics_port", gateway.metrics_port))
    if gateway.acme:
        own += (("tls.acme", HTTP), ("tls.acme", ACME_PORT))
    if gateway.kind != CACHE_AWARE:
        return own
    return (*own, ("cache_port", gateway.cache_port), ("cache_port", gateway.cache_port + 1))


def _check_parts(data: dict[str, object], where: str) -> None:
    """Checks the tables inside, whose keys pydantic would name less well."""
    clients, tls = data.get("clients", {}), data.get("tls")
    if not isinstance(clients, dict):
        raise InputError(f"{where}.clients: must be a table, not {quoted(clients)}", _CLIENT)
    for name, client in clients.items():
        if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name):
            raise InputError(
                f"{where}.clients: {quoted(name)} is not a valid client name",
                "use lower-case letters, digits and dashes, a letter first, at most 31 characters",
            )
        table = _table(client, GatewayClient, f"{where}.clients.{name}", _CLIENT, "key_file")
        if table.get("models") in ([], ()):
            raise InputError(
                f"{where}.clients.{name}.models: empty", "leave it out for every model, or leave the client out"
            )
    if (shared := data.get("shared_address")) is not None:
        _table(shared, SharedAddress, f"{where}.shared_address", _SHARED, "address", "interface")
    if isinstance(tls, dict) and "acme" in tls:
        _check_acme_table(_table(tls, Certificate, f"{where}.tls", _CERTIFICATE), f"{where}.tls")
    elif tls is not None:
        _table(tls, Certificate, f"{where}.tls", _CERTIFICATE, "certificate_file", "key_file")


def _table(data: object, noun: type[Frozen], where: str, hint: str, *required: str) -> dict[str, object]:
    """The table as it is, with keys of the noun alone and with those that are required."""
    if not isinstance(data, dict):
        raise InputError(f"{where}: must be a table, not {quoted(data)}", hint)
    check_keys(data, noun, where)
    for key in required:
        if key not in data:
            raise InputError(f"{where}.{key}: missing", hint)
    return data


def _check_acme_table(tls: dict[str, object], where: str) -> None:
    if len(tls) > 1:
        other = next(key for key in tls if key != "acme")
        raise InputError(
            f"{where}.{other}: cannot be combined with acme, which obtains a certificate", "leave one of them out"
        )
    acme = _table(tls["acme"], Acme, f"{where}.acme", _ACME)
    if not acme.get("domains"):
        raise InputError(f"{where}.acme.domains: missing", _ACME)


def _check_acme(gateway: Gateway, acme: Acme, where: str) -> None:
    for domain in acme.domains:
        if domain.startswith("*."):
            raise InputError(f"{where}.domains: {quoted(domain)} cannot be validated by http-01", "list each name")
        if not _DOMAIN.fullmatch(domain) or len(domain) > LONGEST_DOMAIN:
            raise InputError(f"{where}.domains: {quoted(domain)} is not a domain name", _ACME)
    if acme.email and not re.fullmatch(r"[A-Za-z0-9][!-?A-~]*@[A-Za-z0-9.-]{1,253}", acme.email):
        raise InputError(f"{where}.email: {quoted(acme.email)} is not an e-mail address", _ACME)
    if not re.fullmatch(r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?", acme.directory):
        raise InputError(f"{where}.directory: {quoted(acme.directory)} is not an https URL", _ACME)
    if gateway.shared_address:
        raise InputError(
            f"{where}: gateways that share an address cannot obtain it: the server asks only one of them",
            "obtain one by dns-01 where you run rigup, and set certificate_file and key_file: apply brings it to each",
        )
