"""Gateways: what `rigup plan` prints, HAProxy's configuration and map files, and the unit, to the last character."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from rigup.cli.output.gateways import show_gateways
from rigup.cli.output.plan_json import gateway_as_json
from rigup.gateway.acme import certificate_units
from rigup.gateway.cache_aware import ports_unit, smg_unit
from rigup.gateway.files import backend_keys_map, clients_map, gateway_unit, models_map
from rigup.gateway.haproxy import configuration, digest_of
from rigup.gateway.keepalived import keepalived_configuration, keepalived_unit
from rigup.gateway.paths import ACME_FOLDER, CERTIFICATE_FILE, CLIENTS_FILE, FOLDER, KEYS_FILE, MODELS_FILE
from rigup.gateway_settings import GatewaySettings
from tests.certificates import certificate_with_key
from tests.gateways import FLEETS, settings_of, write_fleet
from tests.golden.golden import assert_golden
from tests.terminal import Terminal

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/bin")


@pytest.fixture(scope="module", params=FLEETS)
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, GatewaySettings]:
    name = request.param
    return name, settings_of(write_fleet(tmp_path_factory.mktemp(name), FLEETS[name]))


def files_of(settings: GatewaySettings) -> dict[str, str]:
    return {
        "haproxy.cfg": configuration(settings.plan),
        CLIENTS_FILE: clients_map(settings),
        MODELS_FILE: models_map(settings.plan),
        KEYS_FILE: backend_keys_map(settings),
    }


@pytest.mark.parametrize("name", ["shared", "shared_ipv6"])
def test_what_keepalived_gets(tmp_path: Path, name: str) -> None:
    configuration = keepalived_configuration(settings_of(write_fleet(tmp_path, FLEETS[name])).plan)
    assert_golden(f"gateways/{name}/keepalived.conf", configuration)
    assert_golden(f"gateways/{name}/address.service", keepalived_unit(configuration))


def test_plan(gateway: tuple[str, GatewaySettings]) -> None:
    name, settings = gateway
    file = Terminal()
    show_gateways((settings.plan,), Console(file=file, width=80, highlight=False, color_system=None))
    assert_golden(f"gateways/{name}.txt", file.getvalue())
    assert_golden(f"gateways/{name}.json", json.dumps(gateway_as_json(settings.plan), indent=1) + "\n")


def test_files(gateway: tuple[str, GatewaySettings]) -> None:
    name, settings = gateway
    for path, text in files_of(settings).items():
        assert_golden(f"gateways/{name}/{Path(path).name}", text)
    assert_golden(f"gateways/{name}/unit.service", gateway_unit(settings.plan.gateway))
    if settings.plan.gateway.tls and (acme := settings.plan.gateway.tls.acme):
        for path, text in certificate_units(settings.plan.gateway, acme).items():
            assert_golden(f"gateways/{name}/certificate{Path(path).suffix}", text)
    if settings.smg:
        assert_golden(f"gateways/{name}/smg.service", smg_unit(settings.plan, settings.smg))
        assert_golden(f"gateways/{name}/ports.service", ports_unit(settings.plan))


def test_no_secret_is_in_the_configuration_or_shown(gateway: tuple[str, GatewaySettings]) -> None:
    _, settings = gateway
    shown = configuration(settings.plan) + repr(settings) + gateway_unit(settings.plan.gateway)
    secrets = [*settings.backend_keys.values(), *settings.client_digests.values()]
    assert [secret for secret in secrets if secret in shown] == []


def test_the_digest_follows_the_configuration(gateway: tuple[str, GatewaySettings]) -> None:
    plan = gateway[1].plan
    other = plan.model_copy(update={"gateway": plan.gateway.model_copy(update={"hold": 77})})
    digests = {digest_of(configuration(plan)), digest_of(configuration(other)), digest_of(configuration(plan))}
    assert len(digests) == 2
    assert "" not in digests


@pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")
def test_haproxy_accepts_it(gateway: tuple[str, GatewaySettings], tmp_path: Path) -> None:
    assert HAPROXY is not None
    settings = gateway[1]
    for path, text in {**files_of(settings), CERTIFICATE_FILE: certificate_with_key()}.items():
        text = text.replace(ACME_FOLDER, str(tmp_path)).replace(FOLDER, str(tmp_path))
        (tmp_path / Path(path).name).write_text(text)
    done = subprocess.run([HAPROXY, "-c", "-f", tmp_path / "haproxy.cfg"], capture_output=True, text=True)
    assert (done.returncode, "WARNING" in done.stderr, "ALERT" in done.stderr) == (0, False, False), done.stderr
