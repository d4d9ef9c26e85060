"""The pinned llama.cpp on a booted machine: two models take turns behind one port and a gateway.

Both are the demo's model, with different contexts and names. The tests go on from one another, in this order.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rigup.lab import demo_model
from rigup.operations.service.health import QUESTION
from rigup.project.inventory import toolkit_root
from tests.lab.fleet import Fleet, wait_for
from tests.lab.fleet_fixtures import made_fleet

pytestmark = [pytest.mark.slow, pytest.mark.lab]

COLD_SECONDS = 2400
KEY = "a-key-that-only-the-gateway-knows"
ASKED = [{"role": "user", "content": QUESTION}]
# systemd expands what begins with % in most of a unit.
FLAGS = {"--chat-template-kwargs": {"note": '100%u \\ "it"'}}
TASKS = Path(__file__).parents[2] / "evaluation_tasks"
RUNS = "InvocationID,MainPID,NRestarts"


class SwapFleet(Fleet):
    """One machine with two services that take turns, and their gateway."""

    def describe_turns(self, second_context: int = 1024) -> None:
        """Writes the inventory."""
        common = {"model": "SmolLM2-135M-Instruct", "swap": True, "listen": "0.0.0.0", "api_key_file": "secrets/key"}
        services = {
            "first": {**common, "served_name": "one", "context": 2048},
            "second": {**common, "served_name": "two:b", "context": second_context, "flags": FLAGS},
        }
        for folder in ("inventories", "group_data", "secrets"):
            (self.root / folder).mkdir(exist_ok=True)
        (self.root / "secrets/key").write_text(f"{KEY}\n")
        (self.root / "secrets/key").chmod(0o600)
        (self.root / "inventories/rehearsal.py").write_text(f"boxes = {[self.host.machine.inventory]!r}\n")
        (self.root / "group_data/boxes.py").write_text(
            f'rig = {{"gpus": []}}\nservices = {services!r}\ngateway = {{"hold": 60}}\nhub = {self.hub.url!r}\n'
            f"builder = {self.builder!r}\n"
        )

    def ask(self, model: str, tokens: int = 24, port: int = 8080, key: str = "") -> dict[str, Any]:
        """The reply to a question for a model, by default through the gateway."""
        body = json.dumps({"model": model, "messages": ASKED, "max_tokens": tokens, "temperature": 0})
        header = f"-H 'Authorization: Bearer {key}'" if key else ""
        words = f"curl -s -m 300 {header} -H 'Content-Type: application/json' -d @- http://127.0.0.1:{port}"
        done = self.host.machine.ssh(f"{words}/v1/chat/completions", input=body, timeout=320, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def loaded(self) -> list[str]:
        """The models that have a process, beside the router."""
        found = self.host.tell("ps -eo args | grep '[/]llama-server' | grep -v models-preset || true")
        return [line.split("--alias ")[1].split()[0] for line in found.splitlines()]

    def resident(self) -> str:
        """What `rigup status` says."""
        (row,) = self.rigup("status", "--json").json["services"]
        assert (row["service"], row["health"], row["drift"]) == ("first", "answers", "none")
        return str(row["resident"])


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwapFleet]:
    """The services as the first apply leaves them."""
    root = tmp_path_factory.mktemp("fleet")
    shutil.copy(toolkit_root() / "rigup.lock", root / "rigup.lock")
    with made_fleet(SwapFleet, "swap", root, demo_model.provide(), hosts=1) as fleet:
        fleet.describe_turns()
        fleet.apply(seconds=COLD_SECONDS)
        yield fleet


def test_the_first_one_is_resident_after_an_apply_which_has_asked_both(fleet: SwapFleet) -> None:
    assert fleet.loaded() == ["one"]
    assert fleet.resident() == "one"
    log = fleet.host.tell("journalctl -o cat -u rigup-first | grep -c 'spawning server instance with name='")
    assert int(log) >= 3  # the first one, the second one, and the first one again


def test_each_answers_by_its_name_through_the_gateway_alone_in_memory(fleet: SwapFleet) -> None:
    before = fleet.host.show(RUNS, "rigup-first.service")
    for model, process in (("two:b", "two:B"), ("one", "one"), ("two:b", "two:B")):
        assert "Paris" in fleet.ask(model)["choices"][0]["message"]["content"]
        assert fleet.loaded() == [process]
    assert fleet.resident() == "two:b"
    (words,) = fleet.host.tell("ps -eo args | grep '[/]llama-server' | grep -v models-preset").splitlines()
    assert json.dumps(FLAGS["--chat-template-kwargs"], separators=(",", ":")) in words
    assert fleet.host.show(RUNS, "rigup-first.service") == before


def test_each_is_asked_by_the_name_of_its_service(fleet: SwapFleet) -> None:
    for service, model, process in (("first", "one", "one"), ("second", "two:b", "two:B"), ("first", "one", "one")):
        found = fleet.rigup("chat", service, QUESTION, "--json", seconds=300).json
        assert (found["service"], found["model"]) == (service, model) and found["text"]
        assert fleet.loaded() == [process]
    rows = fleet.rigup("status").text.splitlines()
    assert [("not loaded" in row) for row in rows if " SmolLM2" in row] == [False, True]


def test_each_is_measured_by_the_name_of_its_service(fleet: SwapFleet) -> None:
    level = ("--concurrency", "1", "--input", "64", "--output", "32", "--requests", "4")
    (found,) = fleet.rigup("bench", "--service", "second", *level, "--json", seconds=600).json["results"]
    endpoint = found["endpoint"]
    assert (found["service"], endpoint["model"], found["drift"]) == ("second", "two:b", [])
    # the router knows neither, unless it is asked about the model
    assert (endpoint["context"], endpoint["prompts"]) == (1024, "token ids")
    assert found["levels"][0]["requests"]["failed"] == 0 and found["levels"][0]["engine"]
    assert fleet.loaded() == ["two:B"]


def test_each_is_evaluated_by_the_name_of_its_service(fleet: SwapFleet) -> None:
    fleet.rigup("lock", "--upgrade", "eval", seconds=600)
    asked = ("--tasks", "rigup_sums", "--include-path", str(TASKS), "--questions", "2", "--json")
    results = fleet.rigup("eval", *asked, seconds=900).json["results"]
    assert [(one["endpoint"]["service"], one["endpoint"]["model"]) for one in results] == [
        ("first", "one"),
        ("second", "two:b"),
    ]
    assert fleet.loaded() == ["two:B"]


def test_prometheus_has_the_metrics_of_the_one_that_is_loaded_and_loads_none(fleet: SwapFleet) -> None:
    name = fleet.host.name
    fleet.rigup("metrics", "--out", "out", "--from", name, "--interval", "1")
    words = "apt-get install -q -y --no-install-recommends prometheus"
    fleet.host.machine.ssh(f"apt-get -q update && DEBIAN_FRONTEND=noninteractive {words}", timeout=600, check=True)
    for file, path in (
        ("out/prometheus.yml", "prometheus.yml"),
        ("out/alerts.yml", "alerts.yml"),
        ("secrets/key", f"keys/{name}.first.key"),
    ):
        text = (fleet.root / file).read_text()
        fleet.host.machine.ssh(f"install -D /dev/stdin /etc/prometheus/{path}", input=text, timeout=60, check=True)
    fleet.host.tell("promtool check config /etc/prometheus/prometheus.yml && systemctl restart prometheus")
    wait_for(lambda: fleet.host.says("curl -sf http://127.0.0.1:9090/-/ready"), "Prometheus", 60)

    def up() -> dict[str, str]:
        said = fleet.host.tell("curl -sG http://127.0.0.1:9090/api/v1/query --data-urlencode 'query=up{service!=\"\"}'")
        found = json.loads(said)["data"]["result"]
        return {one["metric"]["service"]: one["value"][1] for one in found}

    wait_for(lambda: up() == {"first": "0", "second": "1"}, "the metrics of the second one", 60)
    assert fleet.loaded() == ["two:B"]
    fleet.ask("one")
    wait_for(lambda: up() == {"first": "1", "second": "0"}, "the metrics of the first one", 60)
    fleet.host.tell("systemctl stop prometheus")


def test_an_apply_without_changes_swaps_nothing(fleet: SwapFleet) -> None:
    (host,) = fleet.apply().json["hosts"]
    assert (host["state"], fleet.loaded()) == ("unchanged", ["one"])
    fleet.rigup("diff")


def test_requests_for_both_at_once_are_all_answered_and_one_model_is_there_at_a_time(fleet: SwapFleet) -> None:
    most = 0
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(fleet.ask, ("one", "two:b")[number % 2], 8) for number in range(8)]
        while not all(one.done() for one in asked):
            most = max(most, len(fleet.loaded()))
    assert most == 1
    assert all(one.result()["usage"]["completion_tokens"] for one in asked)


def test_nobody_gets_past_the_key_neither_at_the_router_nor_behind_it(fleet: SwapFleet) -> None:
    assert fleet.ask("one", port=8000)["error"]["code"] == 401
    assert fleet.ask("one", port=8000, key=KEY)["choices"]
    found = fleet.host.tell("ss -Htlnp | grep llama-server | grep -v ':8000 ' | awk '{print $4}'")
    (address,) = found.split()
    assert address.startswith("127.0.0.1:")
    assert fleet.ask("one", port=int(address.rpartition(":")[2]))["error"]["code"] == 401
    assert KEY not in fleet.host.tell("ps -eo args; systemctl cat rigup-first; cat /etc/rigup/services/first/current/*")


def test_a_change_of_one_is_a_release_of_both_and_comes_back(fleet: SwapFleet) -> None:
    fleet.describe_turns(second_context=512)
    (change,) = fleet.rigup("diff", "--json", expect=1).json["hosts"]
    assert change["state"] == "differs"
    fleet.apply()
    assert "Paris" in fleet.ask("two:b")["choices"][0]["message"]["content"]
    size = "ps -eo args | grep '[/]llama-server' | grep -o 'ctx-size [0-9]*'"
    assert fleet.host.tell(size) == "ctx-size 512"
    fleet.rigup("rollback", "--yes", seconds=300)
    wait_for(lambda: fleet.loaded() == ["one"], "the first model after a rollback")
    fleet.ask("two:b")
    assert fleet.host.tell(size) == "ctx-size 1024"
