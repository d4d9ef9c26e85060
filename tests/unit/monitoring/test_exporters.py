"""The files of exporters, and Prometheus' configuration: golden, and without a key in them."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.catalogue.tools.monitoring import exporter_facts
from rigup.commands.swap_groups import taking_turns
from rigup.lock import Lock
from rigup.monitoring.alerts import ALERTS, alerts_yml
from rigup.monitoring.exporters import GPU_FILES, NODE_FILES, TIMER, exporter_files
from rigup.monitoring.scrape_config import ScrapedHost, prometheus_yml, scrape_config_of
from rigup.plan import Monitoring, Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service
from rigup.service import Service
from tests.golden.golden import assert_golden
from tests.unit.planner.asking import FILE, PRO_6000, catalogue

SMALL = {"model": "SmolLM2-135M-Instruct"}
LARGE = {"model": "MiniMax-M2.5", "listen": "0.0.0.0", "api_key_file": "secrets/large.key"}


def planned(host: str, group: str, gpus: object = (), **services: dict[str, Any]) -> tuple[Plan, ...]:
    rig = read_rig({"gpus": list(gpus) if isinstance(gpus, tuple) else gpus}, FILE, catalogue())
    wanted = read_services(services, FILE, rig)
    return tuple(plan_service(host, group, rig, service, catalogue(), Lock()) for service in wanted)


def test_the_files_of_both_exporters() -> None:
    files = exporter_files(Monitoring(dcgm_exporter=True, listen="10.0.0.5", port=9101))
    assert set(files) == {*NODE_FILES, *GPU_FILES}
    assert_golden("monitoring/files.txt", "".join(f"=== {path}\n{text}" for path, text in sorted(files.items())))


def test_only_what_is_wanted_and_an_ipv6_address_in_brackets() -> None:
    assert set(exporter_files(Monitoring())) == set(NODE_FILES)
    alone = exporter_files(Monitoring(node_exporter=False, dcgm_exporter=True, listen="::1"))
    assert set(alone) == set(GPU_FILES)
    assert "Environment=DCGM_EXPORTER_LISTEN=[::1]:9400\n" in alone[GPU_FILES[0]]


def test_no_service_can_have_the_name_of_a_unit_of_ours() -> None:
    with pytest.raises(ValueError, match="name"):
        Service(name=TIMER.removeprefix("rigup-").removesuffix(".timer"), model="m")


def test_a_fleet_as_prometheus_scrapes_it() -> None:
    everywhere = Monitoring(listen="0.0.0.0", dcgm_exporter=True)
    card = f"4x {PRO_6000}"
    vllm = planned("gpu1.lan", "cards", card, large={**LARGE, "engine": "vllm"})
    sglang = planned("gpu2.lan", "cards", card, large={**LARGE, "engine": "sglang"})
    guarded = planned("box", "boxes", chat={**SMALL, "listen": "10.0.0.7", "api_key_file": "k"})
    hosts = (
        ScrapedHost("gpu1.lan", "gpu1.lan", "cards", vllm, everywhere),
        ScrapedHost("gpu2.lan", "10.0.0.2", "cards", sglang, everywhere),
        ScrapedHost("box", "box", "boxes", guarded, Monitoring(listen="10.0.0.7")),
        ScrapedHost("alone", "alone", "boxes", planned("alone", "boxes", chat=SMALL), Monitoring()),
        ScrapedHost("plain", "plain", "boxes", planned("plain", "boxes", chat=SMALL), None),
    )
    scraped = scrape_config_of(hosts)
    assert [target.key_file for target in scraped.targets if target.key_file] == ["keys/box.chat.key"]
    assert_golden("monitoring/prometheus.yml", prometheus_yml(scraped, "homelab.py"))


def test_a_prometheus_on_the_host_reaches_its_loopback() -> None:
    plans = planned(
        "alone", "boxes", chat=SMALL, open={**SMALL, "listen": "0.0.0.0", "port": 8001, "api_key_file": "k"}
    )
    scraped = scrape_config_of([ScrapedHost("alone", "alone", "boxes", plans, Monitoring(), here=True)])
    assert [target.address for target in scraped.targets] == ["127.0.0.1:8000", "127.0.0.1:8001", "127.0.0.1:9100"]
    assert scraped.left_out == ()


def test_a_gateway_is_scraped_where_its_metrics_are() -> None:
    hosts = [
        ScrapedHost("gw1", "10.0.0.2", "edge", (), Monitoring(listen="0.0.0.0"), gateway=("0.0.0.0", 8405)),
        ScrapedHost("gw2", "10.0.0.3", "edge", (), Monitoring(listen="0.0.0.0"), gateway=("127.0.0.1", 8405)),
    ]
    scraped = scrape_config_of(hosts)
    gateways = [target for target in scraped.targets if target.job == "gateway"]
    assert [(target.address, target.labels) for target in gateways] == [
        ("10.0.0.2:8405", {"host": "gw1", "group": "edge"})
    ]
    (out,) = scraped.left_out
    assert (out.host, out.what, out.hint.partition(";")[0]) == (
        "gw2",
        "gateway",
        'set metrics_listen = "0.0.0.0" or an address',
    )


def test_of_services_that_take_turns_each_is_scraped_by_its_model_and_none_is_loaded_for_that() -> None:
    service = {**SMALL, "swap": True, "listen": "0.0.0.0", "api_key_file": "k"}
    plans = taking_turns(planned("box", "boxes", a=service, b={**service, "served_name": "b:8b"}))
    scraped = scrape_config_of([ScrapedHost("box", "box", "boxes", plans, Monitoring(listen="0.0.0.0"))])
    assert [(target.address, target.labels.get("service"), target.key_file) for target in scraped.targets] == [
        ("box:8000", "a", "keys/box.a.key"),
        ("box:8000", "b", "keys/box.a.key"),
        ("box:9100", None, ""),
    ]
    assert_golden("monitoring/taking_turns.yml", prometheus_yml(scraped, "homelab.py"))
    onto_loopback = taking_turns(
        planned(
            "box", "boxes", a={**SMALL, "swap": True}, b={**SMALL, "swap": True, "context": 512, "served_name": "b"}
        )
    )
    left_out = scrape_config_of([ScrapedHost("box", "box", "boxes", onto_loopback, None)]).left_out
    assert [out.what for out in left_out] == ["a", "b", "the machine itself"]


def test_a_refused_service_is_named_and_left_out() -> None:
    plans = planned("small", "boxes", "RTX 3090", large={"model": "MiniMax-M2.5", "offload": "none"})
    (out,) = scrape_config_of([ScrapedHost("small", "small", "boxes", plans, Monitoring(listen="0.0.0.0"))]).left_out
    assert (out.what, out.why, out.hint) == ("large", "its plan is refused", "see why: rigup plan")


def test_of_a_service_that_spans_hosts_the_first_answers_for_all() -> None:
    (first,) = planned("gpu1", "pair", chat={**SMALL, "listen": "0.0.0.0", "api_key_file": "k"})
    second = first.model_copy(update={"host": "gpu2", "rank": 1})
    exporter = Monitoring(listen="0.0.0.0")
    hosts = [ScrapedHost(plan.host, plan.host, "pair", (plan,), exporter) for plan in (first, second)]
    assert [target.address for target in scrape_config_of(hosts).targets] == ["gpu1:8000", "gpu1:9100", "gpu2:9100"]


def test_nothing_to_scrape_is_a_configuration_all_the_same() -> None:
    assert prometheus_yml(scrape_config_of([]), "fleet.py").endswith("scrape_configs: []\n")


def test_every_engine_of_the_catalogue_shows_its_metrics() -> None:
    """What rigup starts has them on: vLLM always, SGLang and llama.cpp by an option."""
    card = f"4x {PRO_6000}"
    (vllm,) = planned("h", "g", card, large={**LARGE, "engine": "vllm"})
    (sglang,) = planned("h", "g", card, large={**LARGE, "engine": "sglang"})
    (llama_cpp,) = planned("h", "g", chat=SMALL)
    assert not [word for word in vllm.command if "metrics" in word or "log-stats" in word]
    assert "--enable-metrics" in sglang.command and "--metrics" in llama_cpp.command
    assert exporter_facts().engines.key_wanted == ("llama.cpp",)


def test_alerts_have_names_of_their_own_and_say_where() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
    assert all("{{ $labels.host }}" in alert.summary and alert.severity in ("page", "look") for alert in ALERTS)
    assert_golden("monitoring/alerts.yml", alerts_yml())
