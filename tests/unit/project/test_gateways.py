"""The gateways of a fleet on disk: routes, limits of a run, secrets, and the exact message for what does not fit."""

from __future__ import annotations

import copy
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from rigup.errors import InputError
from rigup.gateway.haproxy import configuration
from rigup.gateway.servers import backend_name, server_name
from rigup.project.gateways import plan_gateways
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from rigup.regular_files import MAY_READ
from tests.certificates import certificate_with_key
from tests.gateways import BACKENDS, FLEETS, HOSTS, OPEN, settings_of, write_fleet

WHERE = "group_data/edge.py: gateway"
OWN_KEY = "make one: openssl rand -hex 32"


@pytest.fixture(autouse=True)
def _in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fleet(**changes: Any) -> dict[str, dict[str, Any]]:
    """The fleet of the golden files with one group of CPUs. changes: to the keys of its service, "gateway" to its."""
    made = copy.deepcopy(FLEETS["fleet"])
    del made["quad_3090"], made["pro"]
    made["edge"]["gateway"] |= {"weights": {}, **changes.pop("gateway", {})}
    made["cpu"]["services"]["small"] |= changes
    return made


def test_two_groups_serve_one_model_on_two_engines(tmp_path: Path) -> None:
    plan = settings_of(write_fleet(tmp_path, FLEETS["fleet"])).plan
    first, second = plan.routes
    assert plan.models == ("minimax-m2.5", "org/small:latest")
    assert [(one.address, one.weight, one.engine.split()[0]) for one in first.backends] == [
        ("10.0.0.11", 1, "llama.cpp"),
        ("10.0.0.12", 1, "llama.cpp"),
        ("fd00::13", 4, "vllm"),
    ]
    assert [(one.service, one.weight) for one in second.backends] == [("small", 2)]
    assert backend_name(first.model) == "model-minimax-m2.5"
    assert backend_name(second.model).startswith("model-org-small-latest-")
    assert server_name(first.backends[0]) == "g1.lan.chat"


def test_a_service_over_several_hosts_is_one_backend(tmp_path: Path) -> None:
    (route,) = settings_of(write_fleet(tmp_path, FLEETS["with_tls"])).plan.routes
    assert [one.host for one in route.backends] == ["p1.lan"]


def test_an_engine_on_the_gateways_own_host_is_reached_on_loopback(tmp_path: Path) -> None:
    (route,) = settings_of(write_fleet(tmp_path, FLEETS["one_box"])).plan.routes
    assert [(one.address, one.wants_key) for one in route.backends] == [("127.0.0.1", False)]
    assert route.key_file is None


@pytest.mark.parametrize(("listen", "address"), [("0.0.0.0", "127.0.0.1"), ("::", "::1")])
def test_an_engine_on_every_address_of_the_gateways_own_host(tmp_path: Path, listen: str, address: str) -> None:
    box = FLEETS["one_box"]["box"]
    chat = {**box["services"]["chat"], **OPEN, "listen": listen}
    (route,) = settings_of(write_fleet(tmp_path, {"box": {**box, "services": {"chat": chat}}})).plan.routes
    assert [one.address for one in route.backends] == [address]


def test_a_run_on_the_gateway_alone_offers_what_the_whole_inventory_serves(tmp_path: Path) -> None:
    project = write_fleet(tmp_path, FLEETS["fleet"])
    (whole,) = plan_gateways(project, plan_project(project))
    alone = load_project(str(project.inventory), "edge")
    assert plan_gateways(alone, plan_project(alone)) == (whole,)
    others = load_project(str(project.inventory), "cpu")
    assert plan_gateways(others, plan_project(others)) == ()


def test_one_service_of_many(tmp_path: Path) -> None:
    made = copy.deepcopy(FLEETS["fleet"])
    made["edge"]["gateway"] |= {"services": ["pro/chat"], "weights": {}, "clients": {"a": {"key_file": "a"}}}
    project = write_fleet(tmp_path, made)
    (plan,) = plan_gateways(project, plan_project(project))
    assert [(route.model, len(route.backends)) for route in plan.routes] == [("minimax-m2.5", 1)]


def test_a_gateway_alone_needs_neither_rig_nor_services(tmp_path: Path) -> None:
    project = write_fleet(tmp_path, FLEETS["fleet"])
    (gateway,) = (host for host in project.hosts if host.group == "edge")
    assert (gateway.data["rig"], gateway.data["services"]) == ({"gpus": []}, {})


def test_keys_are_kept_as_digests_and_one_for_all_backends(tmp_path: Path) -> None:
    settings = settings_of(write_fleet(tmp_path, FLEETS["fleet"]))
    assert settings.client_digests["team-a"] == hashlib.sha256(b"a" * 32).hexdigest()
    assert set(settings.backend_keys.values()) == {BACKENDS}
    assert BACKENDS not in repr(settings)


def test_names_of_models_become_distinct_sections(tmp_path: Path) -> None:
    plan = settings_of(write_fleet(tmp_path, FLEETS["fleet"])).plan
    routes = tuple(plan.routes[0].model_copy(update={"model": model}) for model in ("a/b", "a:b", "a@@b"))
    made = configuration(plan.model_copy(update={"routes": routes}))
    assert len(set(re.findall(r"^backend (model-a-b-[0-9a-f]{8})$", made, re.MULTILINE))) == 2
    assert "-m str a@@b }" in made


@pytest.mark.parametrize(
    ("changes", "words", "hint"),
    [
        (
            {"gateway": {"weights": {"cpus": 2}}},
            '.weights: "cpus" is neither a group with services nor one of its services',
            'try "cpu"',
        ),
        (
            {"gateway": {"services": ["cpu/large"]}},
            '.services: "cpu/large" is neither a group with services nor one of its services',
            "choose from: cpu, cpu/small",
        ),
        (
            {"gateway": {"clients": {"a": {"key_file": "k", "models": ["org/smal"]}}}},
            '.clients.a.models: no service here serves "org/smal"',
            'try "org/small:latest"',
        ),
        (
            {"listen": "127.0.0.1"},
            ": gw1.lan cannot reach cpu/small on localhost, which listens on 127.0.0.1",
            'set services.small.listen = "0.0.0.0" with an api_key_file, or name what to offer in gateway.services',
        ),
        (
            {"api_key_file": None},
            ": cpu/small generates its own API key, which the gateway does not have",
            'set services.small.api_key_file = "secrets/backends.key" in its group',
        ),
        (
            {"served_name": "two words"},
            ': cpu/small is called "two words", which a gateway cannot route',
            'set served_name to letters, digits and "._:/@+-", at most 128 characters',
        ),
    ],
)
def test_what_does_not_fit_the_fleet(tmp_path: Path, changes: dict[str, Any], words: str, hint: str) -> None:
    made = fleet(**changes)
    made["edge"]["gateway"]["clients"].get("team-b", {}).pop("models", None)
    with pytest.raises(InputError) as caught:
        settings_of(write_fleet(tmp_path, made))
    assert (caught.value.message, caught.value.hint) == (f"{WHERE}{words}", hint)


def test_services_of_one_name_with_different_keys(tmp_path: Path) -> None:
    made = copy.deepcopy(FLEETS["fleet"])
    made["pro"]["services"]["chat"]["api_key_file"] = "secrets/team-b.key"
    with pytest.raises(InputError) as caught:
        settings_of(write_fleet(tmp_path, made))
    assert caught.value.message == (
        f"{WHERE}: the services that serve minimax-m2.5 have different keys: secrets/backends.key, secrets/team-b.key"
    )


def shared(**changes: Any) -> dict[str, dict[str, Any]]:
    """The fleet with two gateways that share an address. changes: to what they say of it."""
    made = copy.deepcopy(FLEETS["shared"])
    made["two"]["gateway"]["shared_address"] |= changes
    return made


def test_gateways_that_share_an_address_know_each_other(tmp_path: Path) -> None:
    project = write_fleet(tmp_path, shared())
    assert [plan.sharing for plan in plan_gateways(project, plan_project(project))] == [("gw1.lan", "gw2.lan")] * 2
    alone = load_project(str(project.inventory), "gw2.lan")
    (plan,) = plan_gateways(alone, plan_project(alone))
    assert (plan.host, plan.sharing) == ("gw2.lan", ("gw1.lan", "gw2.lan"))


@pytest.mark.parametrize(
    ("first", "second", "unicast"),
    [
        ("10.0.0.3", "10.0.0.4", ("10.0.0.3", "10.0.0.4")),
        ("gw1.lan", "10.0.0.4", ()),
        ("fd00::3", "fd00::4", ()),
        ("10.0.0.3", "10.0.1.4", ()),
    ],
)
def test_gateways_with_addresses_speak_to_each_other_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str, unicast: tuple[str, ...]
) -> None:
    hosts = [("gw1.lan", {"lan_address": first}), ("gw2.lan", {"lan_address": second})]
    monkeypatch.setitem(HOSTS, "two", hosts)
    project = write_fleet(tmp_path, shared())
    assert [plan.unicast for plan in plan_gateways(project, plan_project(project))] == [unicast] * 2


@pytest.mark.parametrize(
    ("changes", "edge", "words", "hint"),
    [
        (
            {"address": "10.0.0.4/24"},
            None,
            "group_data/two.py: gateway.shared_address.address: 10.0.0.4 is the address of gw2.lan",
            "choose an address that no host has",
        ),
        (
            {},
            {"shared_address": {"address": "10.0.0.6/24", "interface": "eth0", "id": 52}},
            "group_data/two.py: gateway.shared_address.id: 52 is taken by gw3.lan for 10.0.0.6",
            "set another id, 1 to 255, for one of the addresses",
        ),
        (
            {},
            {"shared_address": {"address": "10.0.0.6/24", "interface": "eth0"}},
            f"{WHERE}.shared_address: only gw3.lan has this address",
            "add another gateway to the group, or leave shared_address out",
        ),
        (
            {},
            {"shared_address": {"address": "10.0.0.5/24", "interface": "eth0", "id": 52}, "hold": 9},
            "group_data/two.py: gateway: differs from the gateway of gw3.lan, although both share 10.0.0.5",
            "put both hosts into one group",
        ),
    ],
    ids=["a host's", "id", "alone", "differs"],
)
def test_an_address_that_cannot_be_shared(
    tmp_path: Path, changes: dict[str, Any], edge: dict[str, Any] | None, words: str, hint: str
) -> None:
    made = shared(**changes)
    if edge:
        made["edge"] = {"gateway": {**made["two"]["gateway"], **edge}}
    project = write_fleet(tmp_path, made)
    inventory = project.inventory.read_text().replace("edge = ['gw1.lan']", "edge = ['gw3.lan']")
    project.inventory.write_text(inventory)
    with pytest.raises(InputError) as caught:
        settings_of(load_project(str(project.inventory)))
    assert (caught.value.message, caught.value.hint) == (words, hint)


def test_an_inventory_without_services(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        settings_of(write_fleet(tmp_path, {"edge": {"gateway": {}}}))
    assert caught.value.message == f"{WHERE}: no host of this inventory has a service to offer"


@pytest.mark.parametrize(
    ("file", "text", "words", "hint"),
    [
        (
            "team-a.key",
            "short",
            ".clients.team-a.key_file: secrets/team-a.key must hold at least 16 ASCII characters without spaces",
            OWN_KEY,
        ),
        ("team-a.key", BACKENDS, ".clients.team-a.key_file: has the same key as the services that serve "
         "org/small:latest", OWN_KEY),
        ("team-b.key", "a" * 32, ".clients.team-b.key_file: has the same key as clients.team-a", OWN_KEY),
        ("team-a.key", None, ".clients.team-a.key_file: secrets/team-a.key does not exist", None),
    ],
)  # fmt: skip
def test_a_key_that_is_none(tmp_path: Path, file: str, text: str | None, words: str, hint: str | None) -> None:
    project = write_fleet(tmp_path, fleet())
    path = tmp_path / "secrets" / file
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(InputError) as caught:
        settings_of(project)
    assert caught.value.message == f"{WHERE}{words}"
    assert hint is None or caught.value.hint == hint


_, _, OTHER_KEY = certificate_with_key("gw9.lan").partition("-----BEGIN PRIVATE KEY")
OTHER_KEY = f"-----BEGIN PRIVATE KEY{OTHER_KEY}"
PLAIN_KEY = serialization.load_pem_private_key(OTHER_KEY.encode(), None)
assert isinstance(PLAIN_KEY, EllipticCurvePrivateKey)
ENCRYPTED = [
    PLAIN_KEY.private_bytes(serialization.Encoding.PEM, form, serialization.BestAvailableEncryption(b"secret")).decode()
    for form in (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL)
]
NO_PASSPHRASE = ".tls.key_file: secrets/gateway.key is encrypted, and nobody types a passphrase at the gateway"
DECRYPT = "write it without one: openssl pkey -in secrets/gateway.key -out NEW"
PAIR = ".tls: OpenSSL cannot read secrets/gateway.crt with secrets/gateway.key"
LOOK = (
    "look at both: openssl x509 -noout -text -in secrets/gateway.crt; "
    "openssl pkey -noout -check -in secrets/gateway.key"
)
EMPTY = "-----BEGIN {0}-----\n-----END {0}-----\n"


@pytest.mark.parametrize(
    ("file", "text", "mode", "words", "hint"),
    [
        ("gateway.key", OTHER_KEY, 0o600, ".tls.key_file: secrets/gateway.key is not the key of the first certificate "
         "in secrets/gateway.crt", "name the key that it was made with, and a file that begins with the certificate "
         "and goes on with its chain"),
        *(("gateway.key", text, 0o600, NO_PASSPHRASE, DECRYPT) for text in ENCRYPTED),
        ("gateway.crt", EMPTY.format("CERTIFICATE"), 0o644, PAIR, LOOK),
        ("gateway.key", EMPTY.format("PRIVATE KEY"), 0o600, PAIR, LOOK),
        ("gateway.crt", "x", 0o644, '.tls.certificate_file: "secrets/gateway.crt" does not contain a certificate in '
         "PEM", "name a .pem file"),
        ("gateway.key", "x", 0o600, '.tls.key_file: "secrets/gateway.key" does not contain a private key in PEM',
         "name a .pem file"),
        ("gateway.key", None, 0o644, ".tls.key_file: secrets/gateway.key is readable by other users",
         "chmod 600 secrets/gateway.key"),
    ],
)  # fmt: skip
def test_a_certificate_that_cannot_be_used(
    tmp_path: Path, file: str, text: str | None, mode: int, words: str, hint: str
) -> None:
    project = write_fleet(tmp_path, FLEETS["with_tls"])
    (tmp_path / "secrets/gateway.crt").write_text(certificate_with_key())
    path = tmp_path / "secrets" / file
    if text is not None:
        path.write_text(text)
    path.chmod(mode)
    with pytest.raises(InputError) as caught:
        settings_of(project._replace())
    assert (caught.value.message, caught.value.hint) == (f"{WHERE}{words}", hint)


@pytest.mark.parametrize(("file", "key"), [("gateway.crt", "certificate_file"), ("gateway.key", "key_file")])
def test_a_certificate_that_is_absent(tmp_path: Path, file: str, key: str) -> None:
    project = write_fleet(tmp_path, FLEETS["with_tls"])
    (tmp_path / "secrets" / file).unlink()
    with pytest.raises(InputError) as caught:
        settings_of(project)
    message = f"{WHERE}.tls.{key}: secrets/{file}: No such file or directory"
    assert (caught.value.message, caught.value.hint) == (message, MAY_READ)
