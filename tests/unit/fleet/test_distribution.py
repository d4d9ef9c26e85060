"""Setting up hosts that share weights, and clearing away after them; what a host is asked or told is recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from gevent.pool import Pool

from rigup.errors import HostFailed
from rigup.fleet.distribution import Distribution
from rigup.fleet.result import Change, HostResult
from rigup.fleet.settings import Settings
from rigup.fleet.weights_settings import WeightsSettings
from rigup.operations import weights_sharing
from rigup.operations.weights import step_name
from tests.unit.fleet.test_swarms import KEY, PLANS, checkpoint

BRIDGE = "172.17.0.1"
ADDRESSES = {"a": ("10.0.0.1", BRIDGE), "b": ("10.0.0.2", BRIDGE), "c": ("10.0.0.3",)}


class Hosts:
    """A run of three hosts, of which a and b lack the checkpoint. done: what was done to hosts, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[str, str]] = []
        self.servers: dict[str, weights_sharing.Server] = {}
        hosts = [SimpleNamespace(name=name, connector_data={}) for name in PLANS]
        results = {name: HostResult(name) for name in PLANS}
        for name in ("a", "b"):
            results[name].state = "differs"
            results[name].changes = [Change("weights", step_name(checkpoint("one")))]
        state = SimpleNamespace(inventory=hosts, pool=Pool(5), config=SimpleNamespace(copy=dict))
        settings = dict.fromkeys(PLANS, Settings())
        self.run: Any = SimpleNamespace(
            plans=PLANS, results=results, settings=settings, state=state, tallies=[], disturbed={}
        )
        self.hosts = {host.name: host for host in hosts}

        def serve(host: Any, server: weights_sharing.Server) -> bool:
            self.done.append(("serve", host.name))
            self.servers[host.name] = server
            host.connector_data["rigup_sharing_serves"] = True
            return True

        monkeypatch.setattr(weights_sharing, "addresses_of", lambda host: ADDRESSES[host.name])
        monkeypatch.setattr(weights_sharing, "serve_if_possible", serve)
        monkeypatch.setattr(weights_sharing, "end", lambda host: self.done.append(("end", host.name)))
        monkeypatch.setattr(weights_sharing, "told", lambda host, key: {"taken": {"hub": 5, "c": 7}})

    def fetch(self) -> None:
        """What the fetchers do in the run."""
        for name in ("a", "b"):
            part = weights_sharing.part_of(self.hosts[name], KEY)
            assert part is not None
            weights_sharing.serve_if_possible(self.hosts[name], part.server)
            self.run.results[name].state = "changed"


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    return Hosts(monkeypatch)


def test_who_has_it_serves_first_and_all_end_afterwards(hosts: Hosts) -> None:
    with Distribution(hosts.run, None):
        assert hosts.done == [("serve", "c")]
        hosts.fetch()

    assert sorted(hosts.done[3:]) == [("end", "a"), ("end", "b"), ("end", "c")]
    (tally,) = hosts.run.tallies
    assert (tally.hub_bytes, tally.lan_bytes, tally.told) == (10, 14, [])


def test_each_host_is_told_of_the_others_and_serves_them_alone(hosts: Hosts) -> None:
    with Distribution(hosts.run, None):
        hosts.fetch()

    part = weights_sharing.part_of(hosts.hosts["a"], KEY)
    assert part is not None
    assert part.job["fetchers"] == ("a", "b")
    assert [(each["name"], each["addresses"]) for each in part.job["neighbours"]] == [
        ("b", ("10.0.0.2",)),
        ("c", ("10.0.0.3",)),
    ]
    assert part.server.listen == ("10.0.0.1",)
    assert set(part.server.allow) == {"10.0.0.1", "10.0.0.2", "10.0.0.3", BRIDGE}
    (complete,) = hosts.servers["c"].configuration["checkpoints"]
    assert complete["key"] == KEY and complete["folder"].endswith("/org/one/abc")


def test_servers_stay_where_a_download_may_go_on_behind_a_lost_connection(hosts: Hosts) -> None:
    with Distribution(hosts.run, None):
        hosts.fetch()
        hosts.run.results["b"].fail("failed", HostFailed("b: weights: connection lost for 180 s"))

    assert "end" not in [what for what, _ in hosts.done]


def test_servers_that_are_to_be_kept_are(hosts: Hosts) -> None:
    hosts.run.settings["c"] = replace(Settings(), weights=WeightsSettings(keep=True))
    with Distribution(hosts.run, None):
        hosts.fetch()

    assert sorted(hosts.done[3:]) == [("end", "a"), ("end", "b")]
    assert hosts.servers["c"].configuration["idle_s"] == 0


def test_a_host_that_cannot_be_asked_is_left_out(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(host: Any) -> tuple[str, ...]:
        if host.name == "c":
            raise TimeoutError
        return ADDRESSES[host.name]

    monkeypatch.setattr(weights_sharing, "addresses_of", asked)
    with Distribution(hosts.run, None):
        hosts.fetch()

    part = weights_sharing.part_of(hosts.hosts["a"], KEY)
    assert part is not None and [member.name for member in part.neighbours] == ["b"]


def test_a_host_whose_turn_has_not_come_has_nothing_to_give(hosts: Hosts) -> None:
    with Distribution(hosts.run, ["a"]) as distribution:
        assert [(swarm.fetchers, swarm.complete) for swarm in distribution.swarms] == [(("a",), ("c",))]
        hosts.run.results["a"].state = "changed"


def test_nobody_waits_for_what_is_sent_to_a_host_that_is_to_be_compared_again(hosts: Hosts) -> None:
    packages = replace(Settings().packages, wheelhouse=Path("wheelhouse"))
    hosts.run.settings = dict.fromkeys(PLANS, replace(Settings(), packages=packages))
    with Distribution(hosts.run, None), gevent.Timeout(5):
        part = weights_sharing.part_of(hosts.hosts["a"], KEY)
        assert part is not None
        waiting = gevent.spawn(part.arrived)
        gevent.sleep(0)
        assert not waiting.dead
        hosts.run.disturbed["b"] = []
        waiting.join()
        hosts.run.results["a"].state = hosts.run.results["b"].state = "changed"
