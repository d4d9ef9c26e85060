"""`monitoring` in group_data: what it may say, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.errors import InputError
from rigup.plan import Monitoring
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.planner.monitoring import check_packaged, read_monitoring
from tests.unit.planner.asking import FILE, catalogue
from tests.unit.planner.inputs.texts import KIND, NO_ADDRESS, RANGE, SWITCH, WHOLE

WHERE = f"{FILE}: monitoring"
SYSTEMS = "debian-12, ubuntu-22.04, ubuntu-24.04"


def read(said: object, gpus: object = "4x RTX 3090", os: str | None = None) -> Monitoring:
    rig = read_rig({"gpus": gpus, **({"os": os} if os else {})}, FILE, catalogue())
    services = read_services({"chat": {"model": "SmolLM2-135M-Instruct"}}, FILE, rig)
    return read_monitoring(said, WHERE, rig, services)


def test_a_bare_key_is_the_machines_exporter_on_loopback() -> None:
    assert read({}) == Monitoring(node_exporter=True, dcgm_exporter=False, listen="127.0.0.1", port=9100)
    assert read({}).listeners == {"port": 9100}
    assert read({"dcgm_exporter": True, "node_exporter": False}).listeners == {"dcgm_port": 9400}


@pytest.mark.parametrize(
    ("said", "words", "hint"),
    [
        (True, ": must be a table, not True", "write monitoring = {}, "),
        ({"dcgm": True}, ".dcgm: unknown key", 'try "dcgm_port"'),
        ({"port": "9100"}, f'.port: {WHOLE}, not "9100"', KIND),
        ({"port": 65536}, ".port: must be at most 65535, not 65536", RANGE),
        ({"node_exporter": 1}, f".node_exporter: {SWITCH}, not 1", KIND),
        ({"listen": "everywhere"}, f'.listen: "everywhere" {NO_ADDRESS}', 'use "127.0.0.1" for'),
        ({"node_exporter": False}, ": every exporter is turned off", "leave monitoring out"),
        ({"port": 8000}, ".port: 8000 is taken by services.chat", "choose another port"),
        (
            {"dcgm_exporter": True, "dcgm_port": 9100},
            ".dcgm_port: 9100 is taken by monitoring.port",
            "choose another port",
        ),
    ],
)
def test_what_cannot_be_meant(said: Any, words: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read(said)
    assert caught.value.message == f"{WHERE}{words}"
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("service", "said", "key", "port"),
    [
        ({"join_port": 9100}, {}, "port", 9100),
        ({}, {"port": 18000}, "port", 18000),
        ({}, {"dcgm_exporter": True, "dcgm_port": 28000}, "dcgm_port", 28000),
    ],
)
def test_ports_that_hosts_of_a_service_use_among_themselves(
    service: dict[str, Any], said: dict[str, Any], key: str, port: int
) -> None:
    wanted = {"chat": {"model": "SmolLM2-135M-Instruct", **service}}
    for hosts in (1, 2):
        rig = read_rig({"gpus": "2x H200", "hosts_per_service": hosts}, FILE, catalogue())
        services = read_services(wanted, FILE, rig)
        if hosts == 1:
            assert read_monitoring(said, WHERE, rig, services).listeners[key] == port
            continue
        with pytest.raises(InputError) as caught:
            read_monitoring(said, WHERE, rig, services)
        taken = "traffic between the hosts of services.chat"
        assert caught.value.message == f"{WHERE}.{key}: {port} is taken by {taken}"
        assert caught.value.hint == "choose another port"


def test_gpus_that_are_not_there_or_that_nvidia_does_not_package_it_for_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        read({"dcgm_exporter": True}, gpus=[])
    assert caught.value.message == f"{WHERE}.dcgm_exporter: this rig has no GPU"
    with pytest.raises(InputError) as caught:
        read({"dcgm_exporter": True}, os="debian-13")
    assert caught.value.message == f"{WHERE}.dcgm_exporter: NVIDIA packages it for {SYSTEMS}, not for debian-13"
    assert read({"dcgm_exporter": True}, os="ubuntu-24.04").dcgm_exporter
    check_packaged("monitoring", "debian-12")
