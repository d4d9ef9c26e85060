"""`rigup bench` by inventory: the client on a booted machine, beside a mock engine, with simulated GPUs.

The mock stands where a service of rigup's would: on the machine's loopback, behind its API key. What a release leaves
on a machine is written by hand, since only the client is tried here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab
from tests.lab.fleet import Fleet, Host, wait_for

pytestmark = pytest.mark.lab

MOCK = Path(__file__).parents[1] / "unit/bench/mock_endpoint.py"
KEY = "sk-of-the-service"
# so many at once that the engine queues some in every sample, however slow the machine
QUICK = ("--concurrency", "1,12", "--input", "64", "--output", "20", "--seconds", "1")


@pytest.fixture
def served(site: tuple[Lab, StandInHub, Path, Path]) -> Iterator[Fleet]:
    """A fleet of one machine on which a mock engine serves, as a release of `chat` would."""
    fleet = Fleet(*site)
    fleet.describe(listen="0.0.0.0")
    host = fleet.host
    host.wipe()
    folder = "/etc/rigup/services/chat"
    host.tell(
        f"mkdir -p {folder}/releases/1; ln -sfn releases/1 {folder}/current; "
        f'echo \'{{"build": "llama.cpp-b1-mock", "checkpoint": {{"repo": "a/b"}}}}\' > {folder}/current/release.json; '
        f"umask 077; echo {KEY} > {folder}/api-key"
    )
    settings = {"style": "llama.cpp", "model": "SmolLM2-135M-Instruct", "key": KEY, "port": 8000}
    start(host, {**settings, "ttft": 0.05, "itl": 0.005, "running": 3})
    yield fleet
    host.wipe()


def start(host: Host, settings: dict[str, object]) -> None:
    host.machine.ssh("cat > /run/mock_endpoint.py", input=MOCK.read_text(), check=True)
    host.tell(f"systemd-run --quiet --collect --unit=rigup-chat python3 /run/mock_endpoint.py '{json.dumps(settings)}'")
    wait_for(lambda: host.says(f"curl -sf -H 'Authorization: Bearer {KEY}' 127.0.0.1:8000/v1/models"), "the mock")


def test_a_service_is_measured_beside_its_engine(served: Fleet) -> None:
    run = served.rigup("bench", "--json", *QUICK)
    (result,) = run.json["results"]
    host = served.host
    assert (result["host"], result["service"], result["release"]) == (host.name, "chat", "1")
    assert (result["endpoint"]["url"], result["client"]["machine"]) == ("http://127.0.0.1:8000", host.tell("uname -n"))
    assert result["plan"].startswith("sha256:")
    assert "checkpoint" in result["drift"]
    one, many = result["levels"]
    assert 45 < one["ttft_ms"]["p50"] < 1000
    assert (one["engine"]["capped"], many["engine"]["capped"], many["engine"]["running_most"]) == (False, True, 3)
    stored = json.loads((served.root / result["file"]).read_text())
    assert stored["levels"] == result["levels"]
    assert KEY not in run.text + json.dumps(stored)
    # nothing is left there, and the host is free again
    assert not host.says("pgrep -f bench_main")
    assert served.rigup("bench", "--compare", result["file"], result["file"]).text
    assert not host.says("test -e /run/rigup/lease/lease.json")


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured_and_leaves_nothing_running(served: Fleet) -> None:
    run = served.start("bench", "--json", "--concurrency", "2,3", "--input", "16", "--output", "9", "--seconds", "4")
    run.wait_to_say("3 at once, 16 in, window")
    run.interrupt()
    assert run.wait() == 130
    (result,) = run.json["results"]
    assert (result["complete"], result["why"]) == (False, "stopped")
    assert [level["complete"] for level in result["levels"]] == [True, False]
    wait_for(lambda: not served.host.says("pgrep -fa 'python3 -I -c'"), "the client to be gone")


@pytest.mark.slow
def test_a_service_that_is_down_is_said_to_be(served: Fleet) -> None:
    served.host.tell("systemctl stop rigup-chat")
    run = served.rigup("bench", expect=2)
    message = f"{served.host.name}: chat: http://127.0.0.1:8000: connection refused"
    assert message in run.text
    start(served.host, {"port": 8000, "key": KEY})
