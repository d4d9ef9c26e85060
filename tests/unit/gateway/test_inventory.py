"""`gateway` in group_data: what it may say, and the exact message for the rest."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.errors import InputError
from rigup.gateway.inventory import check_ports, read_gateway
from rigup.gateway_settings import Gateway
from rigup.plan import Monitoring
from rigup.service import Service
from tests.hostile import texts
from tests.unit.planner.inputs.texts import ADDRESSES, KIND, LIST, NO_ADDRESS, ONE_OF, RANGE, WHOLE

WHERE = "group_data/edge.py: gateway"
CLIENT = {"key_file": "secrets/a.key"}
EXAMPLE = 'write gateway = {}, or with settings: gateway = {"listen": "10.0.0.2", "clients": {...}}'
CLIENTS = 'write it like clients = {"team-a": {"key_file": "secrets/team-a.key"}}'
SHARED = 'write it like shared_address = {"address": "10.0.0.5/24", "interface": "eth0"}'
SHARING = {"listen": "0.0.0.0", "clients": {"a": CLIENT}}
ADDRESS = {"address": "10.0.0.5/24", "interface": "eth0"}
WRITE_TLS = "write it like tls ="
TLS = WRITE_TLS + ' {"certificate_file": "secrets/gateway.crt", "key_file": "secrets/gateway.key"}'
ACME = WRITE_TLS + ' {"acme": {"domains": ["llm.example.org"], "email": "admin@example.org"}}'


def test_a_bare_key_is_a_gateway_on_loopback_without_clients() -> None:
    assert read_gateway({}, WHERE) == Gateway(listen="127.0.0.1", port=8080, hold=0)


@pytest.mark.parametrize(
    ("said", "words", "hint"),
    [
        (True, ": must be a table, not True", EXAMPLE),
        ({"lisen": "::1"}, ".lisen: unknown key", 'try "listen"'),
        (
            {"kind": "smg"},
            f'.kind: {ONE_OF} least_connections, cache_aware, not "smg"',
            "choose from: cache_aware, least_connections",
        ),
        (
            {"kind": "cache_aware", "cache_port": 8404},
            ".cache_port: 8405 is taken by gateway.metrics_port",
            "choose another port",
        ),
        ({"cache_port": 65535}, ".cache_port: must be at most 65534, not 65535", RANGE),
        ({"port": "80"}, f'.port: {WHOLE}, not "80"', KIND),
        ({"port": 0}, ".port: must be at least 1, not 0", RANGE),
        ({"hold": -1}, ".hold: must be at least 0, not -1", RANGE),
        ({"hold": 3601}, ".hold: must be at most 3600, not 3601", RANGE),
        ({"body_limit_mib": 65}, ".body_limit_mib: must be at most 64, not 65", RANGE),
        ({"connections_per_address": 0}, ".connections_per_address: must be at least 1, not 0", RANGE),
        ({"connections_per_address": 7801}, ".connections_per_address: must be at most 7800, not 7801", RANGE),
        ({"weights": {"box": 257}}, ".weights.box: must be at most 256, not 257", RANGE),
        ({"weights": []}, ".weights: must be a table, not []", KIND),
        ({"services": "box"}, f'.services: {LIST}, not "box"', KIND),
        (
            {"listen": "everywhere"},
            f'.listen: "everywhere" {NO_ADDRESS}',
            ADDRESSES,
        ),
        (
            {"metrics_listen": ""},
            f'.metrics_listen: "" {NO_ADDRESS}',
            ADDRESSES,
        ),
        ({"listen": "10.0.0.2"}, ".clients: missing: anyone who reaches 10.0.0.2 could use it", CLIENTS),
        ({"metrics_port": 8080}, ".metrics_port: 8080 is taken by gateway.port", "choose another port"),
        ({"clients": ["a"]}, ".clients: must be a table, not ['a']", CLIENTS),
        (
            {"clients": {"Team A": CLIENT}},
            '.clients: "Team A" is not a valid client name',
            "use lower-case letters, digits and dashes, a letter first, at most 31 characters",
        ),
        ({"clients": {"a": "secrets/a.key"}}, '.clients.a: must be a table, not "secrets/a.key"', CLIENTS),
        ({"clients": {"a": {}}}, ".clients.a.key_file: missing", CLIENTS),
        (
            {"clients": {"a": {"key": "x"}}},
            ".clients.a.key: unknown key",
            "choose from: concurrency, key_file, models, requests_per_minute",
        ),
        (
            {"clients": {"a": {**CLIENT, "models": []}}},
            ".clients.a.models: empty",
            "leave it out for every model, or leave the client out",
        ),
        (
            {"clients": {"a": {**CLIENT, "requests_per_minute": 0}}},
            ".clients.a.requests_per_minute: must be at least 1, not 0",
            RANGE,
        ),
        (
            {"clients": {"a": {**CLIENT, "concurrency": 1.5}}},
            f".clients.a.concurrency: {WHOLE}, not 1.5",
            KIND,
        ),
        ({"tls": True}, ".tls: must be a table, not True", TLS),
        ({"tls": {"certificate_file": "a.crt"}}, ".tls.key_file: missing", TLS),
        ({"tls": {"cert": "a.crt"}}, ".tls.cert: unknown key", "choose from: acme, certificate_file, key_file"),
        (
            {"tls": {"acme": {"domains": ["a.org"]}, "key_file": "a.key"}},
            ".tls.key_file: cannot be combined with acme, which obtains a certificate",
            "leave one of them out",
        ),
        ({"tls": {"acme": "a.org"}}, '.tls.acme: must be a table, not "a.org"', ACME),
        ({"tls": {"acme": {"email": "a@a.org"}}}, ".tls.acme.domains: missing", ACME),
        (
            {"tls": {"acme": {"domains": ["a.org"], "key": "x"}}},
            ".tls.acme.key: unknown key",
            "choose from: directory, domains, email",
        ),
        ({"tls": {"acme": {"domains": "a.org"}}}, f'.tls.acme.domains: {LIST}, not "a.org"', KIND),
        (
            {"tls": {"acme": {"domains": ["*.a.org"]}}},
            '.tls.acme.domains: "*.a.org" cannot be validated by http-01',
            "list each name",
        ),
        *(
            ({"tls": {"acme": {"domains": [name]}}}, f'.tls.acme.domains: "{name}" is not a domain name', ACME)
            for name in ("localhost", "A.org", "a..org", "-x.org", "a.org --server", "10.0.0.2/24")
        ),
        (
            {"tls": {"acme": {"domains": ["a.org"], "email": "-a@b"}}},
            '.tls.acme.email: "-a@b" is not an e-mail address',
            ACME,
        ),
        (
            {"tls": {"acme": {"domains": ["a.org"], "directory": "http://a.org/d"}}},
            '.tls.acme.directory: "http://a.org/d" is not an https URL',
            ACME,
        ),
        (
            {"tls": {"acme": {"domains": ["a.org"]}}, "port": 80},
            ".tls.acme: 80 is taken by gateway.port",
            "choose another port",
        ),
        (
            {**SHARING, "tls": {"acme": {"domains": ["a.org"]}}, "shared_address": ADDRESS},
            ".tls.acme: gateways that share an address cannot obtain it: the server asks only one of them",
            "obtain one by dns-01 where you run rigup, and set certificate_file and key_file: apply brings it to each",
        ),
        ({"shared_address": "10.0.0.5"}, '.shared_address: must be a table, not "10.0.0.5"', SHARED),
        ({"shared_address": {"address": "10.0.0.5/24"}}, ".shared_address.interface: missing", SHARED),
        ({"shared_address": {"interface": "eth0"}}, ".shared_address.address: missing", SHARED),
        (
            {"shared_address": {**ADDRESS, "priority": 1}},
            ".shared_address.priority: unknown key",
            "choose from: address, id, interface",
        ),
        ({"shared_address": {**ADDRESS, "id": 256}}, ".shared_address.id: must be at most 255, not 256", RANGE),
        (
            {**SHARING, "shared_address": {**ADDRESS, "address": "10.0.0.5"}},
            '.shared_address.address: "10.0.0.5" is not an address with its network\'s prefix',
            SHARED,
        ),
        (
            {**SHARING, "shared_address": {**ADDRESS, "address": "10.0.0.5/33"}},
            '.shared_address.address: "10.0.0.5/33" is not an address with its network\'s prefix',
            SHARED,
        ),
        (
            {**SHARING, "shared_address": {**ADDRESS, "address": "127.0.0.5/8"}},
            '.shared_address.address: "127.0.0.5/8" cannot be held on a network',
            "choose a free address of the gateways' network",
        ),
        (
            {**SHARING, "shared_address": {**ADDRESS, "interface": "eth0 }"}},
            '.shared_address.interface: "eth0 }" is not the name of an interface',
            "list them on the gateways: ip -brief address",
        ),
        (
            {"shared_address": ADDRESS},
            ".listen: 127.0.0.1 does not take requests to 10.0.0.5, which moves between gateways",
            'set listen = "0.0.0.0"',
        ),
        (
            {**SHARING, "shared_address": {**ADDRESS, "address": "fd00::5/64"}},
            ".listen: 0.0.0.0 does not take requests to fd00::5, which moves between gateways",
            'set listen = "::"',
        ),
    ],
)
def test_what_cannot_be_meant(said: Any, words: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read_gateway(said, WHERE)
    assert (caught.value.message, caught.value.hint) == (f"{WHERE}{words}", hint)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*Gateway.model_fields, "port "]), VALUES, max_size=4), VALUES)
def test_anything_else_is_one_message(said: dict[str, Any], client: Any) -> None:
    for data in (said, {**said, "clients": {"a": client}}, {**said, "tls": client}, client):
        with suppress(InputError):
            read_gateway(data, WHERE)
    with suppress(InputError):
        read_gateway({**SHARING, "shared_address": {**ADDRESS, "address": client, "interface": client}}, WHERE)
    with suppress(InputError):
        read_gateway({"shared_address": client}, WHERE)


def test_a_system_with_an_older_haproxy() -> None:
    with pytest.raises(InputError) as caught:
        read_gateway({}, WHERE, "ubuntu-22.04")
    assert caught.value.message == f"{WHERE}: needs HAProxy 2.6, which ubuntu-22.04 does not have"
    read_gateway({}, WHERE, "debian-12")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"port": 8000}, ".port: 8000 is taken by services.chat"),
        ({"metrics_port": 8000}, ".metrics_port: 8000 is taken by services.chat"),
        ({"port": 9100}, ".port: 9100 is taken by monitoring.port"),
    ],
)
def test_a_port_of_another_part_of_the_host(said: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        check_ports(read_gateway(said, WHERE), WHERE, [Service(name="chat", model="m")], Monitoring())
    assert (caught.value.message, caught.value.hint) == (f"{WHERE}{words}", "choose another port")
