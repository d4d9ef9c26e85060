"""Which steps a host gets for its gateway, in which order; none that changes a host that never had one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import roles.gateway
import roles.removed
import roles.site
from rigup.errors import HostFailed
from rigup.facts.probe import Probe
from rigup.gateway_settings import LETS_ENCRYPT, GatewaySettings
from rigup.settings import HostSettings, PackageSource
from tests.gateways import FLEETS, settings_of, write_fleet

NONE = ("no certificate by ACME", "no routing by prefix")

STEPS = (
    "installed_haproxy",
    "running_gateway",
    "shared_address",
    "acme_certificate",
    "installed_smg",
    "smg_ready_for",
    "running_smg",
)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The operations that are called, with their arguments; what is removed by the name of its step."""
    calls: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(
        roles.gateway, "debian_packages", lambda names: calls.append((f"packages {' '.join(names)}", {}))
    )
    monkeypatch.setattr(roles.gateway, "system_user", lambda **_: None)
    monkeypatch.setattr(roles.gateway.root_files, "programs", lambda **_: None)
    for name in STEPS:
        monkeypatch.setattr(roles.gateway, name, lambda _name=name, **words: calls.append((_name, words)))
    for role in (roles.gateway, roles.removed):
        monkeypatch.setattr(role, "removed_part", lambda name, part: calls.append((name, {"part": part})))
    monkeypatch.setattr(roles.gateway, "host", SimpleNamespace(name="box"))
    return calls


def settings(folder: Path, name: str) -> GatewaySettings:
    return settings_of(write_fleet(folder, FLEETS[name]))


@pytest.mark.parametrize(
    ("name", "urls"),
    [
        ("fleet", (("http://10.0.0.2:8080/health", "200"), ("http://10.0.0.2:8080/v1/models", "401"))),
        ("one_box", (("http://127.0.0.1:8080/health", "200"), ("http://127.0.0.1:8080/v1/models", "200"))),
        ("with_tls", (("https://[::1]:443/health", "200"), ("https://[::1]:443/v1/models", "401"))),
    ],
)
def test_it_is_installed_then_run_and_asked_where_it_listens(
    tmp_path: Path, called: list[tuple[str, dict[str, Any]]], name: str, urls: tuple[tuple[str, str], ...]
) -> None:
    roles.gateway.gateway._inner(settings(tmp_path, name), Probe(os="debian-12"), PackageSource())
    assert [step for step, _ in called] == ["installed_haproxy", "running_gateway", *NONE, "no shared address"]
    assert called[1][1]["urls"] == urls


def test_a_shared_address_comes_after_the_gateway_that_answers_there(
    tmp_path: Path, called: list[tuple[str, dict[str, Any]]]
) -> None:
    roles.gateway.gateway._inner(settings(tmp_path, "shared"), Probe(os="debian-12"), PackageSource())
    assert [step for step, _ in called][4:] == ["packages keepalived", "shared_address"]
    words = called[5][1]
    assert words["url"] == "http://10.0.0.5:8080/health"
    assert "priority 149\n" in words["configuration"]


def test_smg_has_ended_and_its_ports_are_closed_before_haproxy_changes(
    tmp_path: Path, called: list[tuple[str, dict[str, Any]]]
) -> None:
    wanted = settings(tmp_path, "cached")
    roles.gateway.gateway._inner(wanted, Probe(os="debian-12", architecture="aarch64"), PackageSource())
    before = ["installed_haproxy", "packages nftables", "installed_smg", "smg_ready_for"]
    assert [step for step, _ in called][:7] == [*before, "running_gateway", NONE[0], "running_smg"]
    assert (called[2][1]["locked"], called[2][1]["architecture"], called[6][1]["port"]) == (wanted.smg, "aarch64", 8406)


def test_a_certificate_is_there_before_haproxy_is_to_use_it(
    tmp_path: Path, called: list[tuple[str, dict[str, Any]]]
) -> None:
    roles.gateway.gateway._inner(settings(tmp_path, "acme"), Probe(os="debian-12"), PackageSource())
    order = ["installed_haproxy", "packages certbot", "acme_certificate", "running_gateway", NONE[1]]
    assert [step for step, _ in called][:5] == order
    assert called[2][1]["directory"] == LETS_ENCRYPT


def test_a_host_without_a_gateway_only_loses_one(called: list[tuple[str, dict[str, Any]]]) -> None:
    roles.removed.no_gateway._inner()
    assert [step for step, _ in called] == ["no gateway"]


def test_a_system_with_an_older_haproxy_is_left_alone(tmp_path: Path, called: list[tuple[str, dict[str, Any]]]) -> None:
    with pytest.raises(HostFailed, match=r"box: gateway: needs HAProxy 2\.6, which ubuntu-22\.04 does not have"):
        roles.gateway.gateway._inner(settings(tmp_path, "one_box"), Probe(os="ubuntu-22.04"), PackageSource())
    assert called == []


@pytest.mark.parametrize(("wanted", "programs"), [(True, [("gateway_admin.py",)]), (False, [])])
def test_a_host_that_is_only_a_gateway_has_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool, programs: list[tuple[str, ...]]
) -> None:
    based: list[tuple[str, ...]] = []
    monkeypatch.setattr(roles.site, "base", lambda packages, programs: based.append(programs))
    for role, name in ((roles.site, "_clean_up"), (roles.gateway, "gateway"), (roles.site, "exporters")):
        monkeypatch.setattr(role, name, lambda *_, **__: None)
    monkeypatch.setattr(roles.site, "no_gateway", lambda: None)
    found = settings(tmp_path, "fleet") if wanted else None
    roles.site.provision((), Probe(), HostSettings(gateway=found))
    assert based == programs
