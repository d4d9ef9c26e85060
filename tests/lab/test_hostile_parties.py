"""Everything that users do, beside one hostile host, hub, peer or client: the honest host comes out right each time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hostile import is_harmless
from tests.lab.fleet import FILES, MODEL_FILE, REPO, WEIGHTS, wait_for
from tests.lab.fleet_fixtures import made_site
from tests.lab.hostile_parties import (
    API_KEY,
    CLIENT,
    HEARD,
    HUB_TOKEN,
    Parties,
    bomb,
    endless,
    hostile_hub,
    hostile_peer,
    redirect,
    turn_honest,
    turn_hostile,
    write,
)
from tests.unit.sources.hostile_server import hostile_server

pytestmark = [
    pytest.mark.lab,
    pytest.mark.rests_on("the run", "weights", "locking", "running services", "src/rigup/run/drift.py"),
]


@pytest.fixture(scope="module")
def site(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    """Two machines with a hub, and nothing on them yet."""
    with made_site(tmp_path_factory.mktemp("site"), f"parties{os.getpid()}", hosts=2, disk="3g") as made:
        parties = Parties(*made)
        yield parties
        parties.end_runs()


@pytest.fixture
def parties(site: Parties) -> Iterator[Parties]:
    """Both hosts honest and serving, as the hub is."""
    site.hub.faults(token=HUB_TOKEN)
    site.settle()
    site.apply()
    assert site.honest_serves()
    yield site
    site.end_runs()
    turn_honest(site.hostile)


def of_host(said: dict[str, Any], name: str) -> dict[str, Any]:
    """What a document of --json says of one host."""
    (found,) = (each for each in said["hosts"] if each["host"] == name)
    return dict(found)


def fails_alone(parties: Parties, said: dict[str, Any], state: str) -> None:
    """Holds that the hostile host failed with one message that names it, and the honest one came out like this."""
    failed, well = of_host(said, parties.hostile.name), of_host(said, parties.honest.name)
    (error,) = failed["errors"]
    assert failed["state"] == "failed" and error["message"].startswith(f"{parties.hostile.name}: "), failed
    assert "\n" not in error["message"] and len(error["message"]) < 500
    assert (well["state"], well["errors"]) == (state, [])


def test_a_host_that_lies_about_everything(parties: Parties) -> None:
    hostile, honest = parties.hostile, parties.honest
    turn_hostile(hostile)

    said = parties.watch("diff", "--json", expect=1).json
    well = of_host(said, honest.name)
    assert (well["state"], well["drift"], well["errors"]) == ("unchanged", [], [])
    assert of_host(said, hostile.name)["drift"]
    said = parties.watch("status", "--json", expect=1).json
    assert {each["host"]: each["drift"] for each in said["services"]}[honest.name] == "none"
    parties.watch("status", expect=1)
    parties.watch("status", "--html", "status.html", expect=1)
    parties.watch("report", hostile.name, "--html", "-o", "report.html")
    for page in ("status.html", "report.html"):
        assert is_harmless((parties.root / page).read_text()) and "<script" not in (parties.root / page).read_text()
    assert parties.watch("releases", "--json").json["hosts"][honest.name]["chat"][0]["current"]
    parties.watch("releases")
    for host in (hostile, honest):
        assert "apply by " in parties.watch("log", host.name).text
    parties.watch("bench", "--requests", "1", "--concurrency", "1", "--input", "8", "--output", "4", expect=1)
    fails_alone(parties, parties.watch("prune", "--json", "--yes", expect=1).json, "unchanged")

    parties.settle(context=4096)
    said = parties.watch("apply", "--yes", "--json").json
    well = of_host(said, honest.name)
    assert (well["changes"], well["errors"]) == ([{"role": "service", "step": "release of chat"}], [])
    assert parties.honest_serves(4096)
    allowed = honest.machine.ssh("cat /run/rigup/serve.json 2>/dev/null").stdout
    assert "0.0.0.0" not in allowed and "10.0.0.1" not in allowed
    said = parties.watch("rollback", "--yes", "--json", expect=1).json
    assert of_host(said, honest.name)["state"] == "changed"
    assert parties.honest_serves()
    assert parties.recorded_builds() == []


def test_a_host_that_prints_without_end(parties: Parties) -> None:
    for behaviour in ("lines", "errors", "flood"):
        turn_hostile(parties.hostile, behaviour)
        fails_alone(parties, parties.watch("diff", "--json", expect=1).json, "unchanged")
    parties.watch("status", "--json", expect=1)
    parties.settle(context=4096)
    fails_alone(parties, parties.watch("apply", "--yes", "--json", expect=1).json, "changed")
    assert parties.honest_serves(4096)


def test_a_host_that_says_nothing(parties: Parties) -> None:
    impatient = "import rigup.connection.handshake as greeting; greeting.SECONDS = -20"
    turn_hostile(parties.hostile, "silent")
    parties.settle(context=4096)
    said = parties.watch("apply", "--yes", "--json", expect=1, before=impatient).json
    fails_alone(parties, said, "changed")
    assert parties.honest_serves(4096)


def test_a_hub_that_sends_without_end_and_redirects(parties: Parties) -> None:
    honest = parties.honest
    honest.tell(f"rm -rf {WEIGHTS}/*")
    before = int(honest.tell("df --output=used -B1 / | tail -n 1"))
    with hostile_hub(parties.lab, dict(zip(FILES, (endless, bomb, redirect), strict=True))) as hub:
        parties.settle(hub=hub.url)
        said = parties.watch("apply", "--yes", "--json", "--limit", honest.name, expect=1).json
        (error,) = of_host(said, honest.name)["errors"]
        assert error["message"].startswith(f"{honest.name}: weights: "), error
        assert hub.redirected
        assert HUB_TOKEN not in "".join(hub.redirected)
        assert API_KEY not in "".join((*hub.asked, *hub.redirected))
    assert int(honest.tell("df --output=used -B1 / | tail -n 1")) - before < 64_000_000
    assert not honest.says(f"find {WEIGHTS} -type f '(' -name {MODEL_FILE} -o -name '*.bin' ')' | grep -q .")

    parties.settle()
    parties.apply("--limit", honest.name)
    assert parties.honest_serves()


def test_a_hub_that_lists_without_end(parties: Parties) -> None:
    locked = (parties.root / "rigup.lock").read_text()
    for script in (endless, bomb):
        with hostile_server(script) as url:
            parties.settle(hub=url)
            run = parties.watch("lock", "--upgrade", REPO, expect=2)
            assert url.removeprefix("http://") in run.text
    assert (parties.root / "rigup.lock").read_text() == locked


def test_a_peer_that_offers_everything_and_sends_something_else(parties: Parties) -> None:
    hostile, honest = parties.hostile, parties.honest
    hostile_peer(hostile)
    honest.tell(f"rm -rf {WEIGHTS}/*")
    said = parties.watch("apply", "--yes", "--json", seconds=120).json
    assert of_host(said, honest.name)["errors"] == []
    assert parties.honest_serves()
    assert any(hostile.name in fault for fault in said["weights"][0]["faults"]), said["weights"]


def test_a_client_that_floods_the_port_and_takes_it_while_it_is_free(parties: Parties) -> None:
    honest = parties.honest
    write(honest, "/run/client.py", CLIENT)
    honest.tell("systemd-run --quiet --collect --uid=nobody --unit=client python3 /run/client.py")
    try:
        parties.settle(context=4096)
        parties.watch("apply", "--yes", "--json", "--limit", honest.name, expect=None, seconds=90)
        honest.tell("systemctl stop rigup-chat")
        wait_for(lambda: honest.says("ss -Hltnp sport = :8000 | grep python3"), "the client on the port")
        for verb in (("status", "--json"), ("bench", "--requests", "1"), ("apply", "--yes", "--json")):
            parties.watch(*verb, "--limit", honest.name, expect=None, seconds=90)
        heard = honest.machine.ssh(f"cat {HEARD}").stdout  # the port is closed while it is not the service's
        assert API_KEY not in heard and "Authorization" not in heard
    finally:
        honest.tell(f"systemctl stop client; rm -f {HEARD} /run/client.py*")
    parties.watch("apply", "--yes", "--limit", honest.name)
    assert parties.honest_serves(4096)
