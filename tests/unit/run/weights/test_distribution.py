"""Setting up hosts that share weights, and clearing away after them; what a host is asked or told is recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from gevent.pool import Pool
from hypothesis import given

from rigup.errors import HostFailed
from rigup.host import state_of
from rigup.operations.primitives.remote import Output
from rigup.operations.weights import sharing
from rigup.operations.weights.checkpoint import step_name
from rigup.operations.weights.sharing import SharingState
from rigup.run.result import Change, HostResult
from rigup.run.weights import distribution
from rigup.run.weights.distribution import TransferSummary, WeightsDistribution
from rigup.settings import HostSettings, WeightsSettings
from tests.hostile import bounded, mangled
from tests.unit.run.weights.test_download_groups import KEY, PLANS, checkpoint

BRIDGE = "172.17.0.1"
REACHED = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
ADDRESSES = {"a": ("10.0.0.1", BRIDGE), "b": ("10.0.0.2", BRIDGE), "c": ("10.0.0.3",)}


class Hosts:
    """A run of three hosts, of which a and b lack the checkpoint. done: what was done to hosts, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[str, str]] = []
        self.servers: dict[str, sharing.WeightsServer] = {}
        self.summaries: list[TransferSummary] = []
        hosts = [SimpleNamespace(name=name, connector_data={}) for name in PLANS]
        results = {name: HostResult(name) for name in PLANS}
        for name in ("a", "b"):
            results[name].state = "differs"
            results[name].changes = [Change("weights", step_name(checkpoint("one")))]
        state = SimpleNamespace(inventory=hosts, pool=Pool(5), config=SimpleNamespace(copy=dict))
        settings = dict.fromkeys(PLANS, HostSettings())
        self.run: Any = SimpleNamespace(
            plans=PLANS, results=results, settings=settings, state=state, changed_elsewhere={}
        )
        self.hosts = {host.name: host for host in hosts}

        def serve(host: Any, server: sharing.WeightsServer) -> bool:
            self.done.append(("serve", host.name))
            self.servers[host.name] = server
            state_of(host, sharing.Sharing).serves = True
            return True

        monkeypatch.setattr(sharing, "own_addresses", lambda host: ADDRESSES[host.name])
        monkeypatch.setattr(sharing, "serve_if_possible", serve)
        monkeypatch.setattr(sharing, "end", lambda host: self.done.append(("end", host.name)))
        monkeypatch.setattr(sharing, "sharing_state", lambda host, key: SharingState(taken={"hub": 5, "c": 7}))
        monkeypatch.setattr(distribution, "ssh_address", lambda host: REACHED.get(host.name))

    def fetch(self) -> None:
        """What the fetchers do in the run."""
        for name in ("a", "b"):
            part = state_of(self.hosts[name], sharing.Sharing).parts.get(KEY)
            assert part is not None
            sharing.serve_if_possible(self.hosts[name], part.server)
            self.run.results[name].state = "changed"


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    return Hosts(monkeypatch)


def test_who_has_it_serves_first_and_all_end_afterwards(hosts: Hosts) -> None:
    with WeightsDistribution(hosts.run, None, hosts.summaries):
        assert hosts.done == [("serve", "c")]
        hosts.fetch()

    assert sorted(hosts.done[3:]) == [("end", "a"), ("end", "b"), ("end", "c")]
    (summary,) = hosts.summaries
    assert (summary.hub_bytes, summary.lan_bytes, summary.messages) == (10, 14, [])


def test_each_host_is_told_of_the_others_and_serves_them_alone(hosts: Hosts) -> None:
    with WeightsDistribution(hosts.run, None, hosts.summaries):
        hosts.fetch()

    part = state_of(hosts.hosts["a"], sharing.Sharing).parts.get(KEY)
    assert part is not None
    assert part.job["fetchers"] == ("a", "b")
    assert [(each["name"], each["addresses"]) for each in part.job["peers"]] == [
        ("b", ("10.0.0.2",)),
        ("c", ("10.0.0.3",)),
    ]
    assert part.server.listen == ("10.0.0.1",)
    assert set(part.server.allow) == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    (complete,) = hosts.servers["c"].configuration["checkpoints"]
    assert complete["key"] == KEY and complete["folder"].endswith("/org/one/abc")


LIES = ("0.0.0.0/0", "10.0.0.2", "10.0.0.77", "::/0", "all")


def test_what_a_host_says_of_itself_opens_no_other_server(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {**ADDRESSES, "b": ("10.0.0.3", "10.0.0.77")}
    monkeypatch.setattr(sharing, "own_addresses", lambda host: said[host.name])
    with WeightsDistribution(hosts.run, None, hosts.summaries):
        hosts.fetch()

    part = state_of(hosts.hosts["a"], sharing.Sharing).parts.get(KEY)
    assert part is not None
    assert set(part.server.allow) == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    assert set(hosts.servers["c"].allow) == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    assert [each["addresses"] for each in part.job["peers"]] == [("10.0.0.2",), ("10.0.0.3",)]


def test_of_what_a_host_says_of_itself_only_single_addresses_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    said = " ".join((*LIES, "127.0.0.1", "fe80::1", "0.0.0.0", "fd00::1"))
    monkeypatch.setattr(sharing.remote, "run", lambda *_, **__: Output(True, said, ""))
    assert sharing.own_addresses(None) == ("10.0.0.2", "10.0.0.77", "fd00::1")


def test_a_host_whose_address_nobody_knows_is_left_out_and_told(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REACHED, "b", None)
    with WeightsDistribution(hosts.run, None, hosts.summaries):
        hosts.run.results["a"].state = hosts.run.results["b"].state = "changed"

    assert state_of(hosts.hosts["b"], sharing.Sharing).parts.get(KEY) is None
    (summary,) = hosts.summaries
    assert summary.fetchers == ("a",)
    assert summary.messages == [
        "b: shares no weights: its address for other hosts is unknown; "
        'set it in the inventory: ("b", {"lan_address": "192.168.1.10"})'
    ]


def test_hosts_that_share_nothing_as_nobody_knows_their_addresses_are_told_why(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in REACHED:
        monkeypatch.setitem(REACHED, name, "10.0.0.1")
    with WeightsDistribution(hosts.run, None, hosts.summaries):
        assert state_of(hosts.hosts["a"], sharing.Sharing).parts.get(KEY) is None

    (summary,) = hosts.summaries
    assert [said.split(":")[0] for said in summary.messages] == ["a", "b", "c"]


def test_the_inventory_goes_before_the_connection(hosts: Hosts) -> None:
    hosts.run.settings["c"] = replace(HostSettings(), weights=WeightsSettings(lan_address="192.168.5.3"))
    with WeightsDistribution(hosts.run, None, hosts.summaries):
        hosts.fetch()

    assert set(hosts.servers["c"].allow) == {"10.0.0.1", "10.0.0.2", "192.168.5.3", "10.0.0.3"}
    part = state_of(hosts.hosts["a"], sharing.Sharing).parts.get(KEY)
    assert part is not None and "192.168.5.3" in part.server.allow and "10.0.0.3" not in part.server.allow


@pytest.mark.parametrize(
    "said",
    [
        None,
        "[",
        "[" * 100_000,
        "[1]",
        '{"taken": [1], "banned": 3, "slow": {"x": 1}, "unreachable": null}',
        '{"taken": {"hub": -1, "a": 1e400, "b": "7", "c": true}}',
    ],
)
def test_what_a_host_tells_of_its_download_is_typed_or_nothing(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(sharing.remote, "read_workers_file", lambda *_: said)
    assert sharing.sharing_state(None, KEY) == SharingState()


@given(mangled({"taken": {"hub": 5}, "banned": {"b": "sends too much"}, "slow": {}, "unreachable": {}}).map(json.dumps))
def test_whatever_a_host_tells_of_its_download_is_counts_and_words(said: str) -> None:
    with pytest.MonkeyPatch.context() as patched, bounded():
        patched.setattr(sharing.remote, "read_workers_file", lambda *_: said)
        found = sharing.sharing_state(None, KEY)
    assert all(type(count) is int and 0 <= count < 2**63 for count in found.taken.values())
    for words in (found.banned, found.slow, found.unreachable):
        assert all(type(why) is str and len(why) <= sharing.LONGEST_WORDS for why in words.values())


def test_servers_stay_where_a_download_may_go_on_behind_a_lost_connection(hosts: Hosts) -> None:
    with WeightsDistribution(hosts.run, None, hosts.summaries):
        hosts.fetch()
        hosts.run.results["b"].fail("failed", HostFailed("b: weights: connection lost for 180 s"))

    assert "end" not in [what for what, _ in hosts.done]


def test_servers_that_are_to_be_kept_are(hosts: Hosts) -> None:
    hosts.run.settings["c"] = replace(HostSettings(), weights=WeightsSettings(keep=True))
    with WeightsDistribution(hosts.run, None, hosts.summaries):
        hosts.fetch()

    assert sorted(hosts.done[3:]) == [("end", "a"), ("end", "b")]
    assert hosts.servers["c"].configuration["idle_s"] == 0


def test_a_host_that_cannot_be_asked_is_left_out(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(host: Any) -> tuple[str, ...]:
        if host.name == "c":
            raise TimeoutError
        return ADDRESSES[host.name]

    monkeypatch.setattr(sharing, "own_addresses", asked)
    with WeightsDistribution(hosts.run, None, hosts.summaries):
        hosts.fetch()

    part = state_of(hosts.hosts["a"], sharing.Sharing).parts.get(KEY)
    assert part is not None and [member.name for member in part.peers] == ["b"]


def test_a_host_whose_turn_has_not_come_has_nothing_to_give(hosts: Hosts) -> None:
    with WeightsDistribution(hosts.run, ["a"], hosts.summaries) as distribution:
        assert [(group.fetchers, group.complete) for group in distribution.groups] == [(("a",), ("c",))]
        hosts.run.results["a"].state = "changed"


def test_nobody_waits_for_what_is_sent_to_a_host_that_is_to_be_compared_again(hosts: Hosts) -> None:
    packages = replace(HostSettings().packages, wheelhouse=Path("wheelhouse"))
    hosts.run.settings = dict.fromkeys(PLANS, replace(HostSettings(), packages=packages))
    with WeightsDistribution(hosts.run, None, hosts.summaries), gevent.Timeout(5):
        part = state_of(hosts.hosts["a"], sharing.Sharing).parts.get(KEY)
        assert part is not None
        waiting = gevent.spawn(part.arrived)
        gevent.sleep(0)
        assert not waiting.dead
        hosts.run.changed_elsewhere["b"] = []
        waiting.join()
        hosts.run.results["a"].state = hosts.run.results["b"].state = "changed"


@pytest.mark.parametrize(
    ("serves", "answering", "said"), [(True, [], True), (True, ["c"], True), (True, ["b"], False), (False, [], False)]
)
def test_who_began_to_serve_when_another_was_done_is_not_blamed(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, serves: bool, answering: list[str], said: bool
) -> None:
    monkeypatch.setattr(sharing, "sharing_state", lambda host, key: SharingState(unreachable={"b": "no route"}))
    monkeypatch.setattr(sharing, "answering", lambda host, key: frozenset(answering))
    with WeightsDistribution(hosts.run, None, hosts.summaries):
        hosts.fetch()
        state_of(hosts.hosts["b"], sharing.Sharing).serves = serves
    (summary,) = hosts.summaries
    assert ("a: b could not serve weights: no route" in summary.messages) is said


@pytest.mark.parametrize(
    ("printed", "names"),
    [('["b"]', {"b"}), ('["b", 7]', {"b"}), ("{}", set()), ("no JSON", set()), ("", set()), ("[" * 100_000, set())],
)
def test_what_a_host_says_of_who_answers_it_is_read_with_care(
    monkeypatch: pytest.MonkeyPatch, printed: str, names: set[str]
) -> None:
    host: Any = SimpleNamespace(name="a", connector_data={})
    monkeypatch.setattr(sharing.remote, "run", lambda *words, **more: Output(True, printed, ""))
    assert sharing.answering(host, KEY) == frozenset()
    state_of(host, sharing.Sharing).jobs[KEY] = "/job.json"
    assert sharing.answering(host, KEY) == names
