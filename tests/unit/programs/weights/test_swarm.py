"""Hosts that share a download, as processes on loopback: each file comes from the hub once, no peer is trusted."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.programs import program_file
from rigup.programs.weights import fetch_weights
from rigup.programs.weights.peers import Offer, PeerSharing
from rigup.programs.weights.swarm import ActiveTransfer, PeerDownload
from rigup.programs.weights.weights_folder import load_job
from tests.unit.programs.conftest import Weights, wait_for
from tests.unit.programs.stand_in_peer import StandInPeer

KEY = "k1"
NOWHERE = "http://127.0.0.1:9"
"""A hub that cannot be reached: nothing listens on the discard port."""


class Host:
    """One host of a swarm: its folder of weights, its server, its job."""

    def __init__(self, name: str, weights: Weights, home: Path) -> None:
        self.name = name
        self.sharing = home / "sharing"
        (self.sharing / "files").mkdir(parents=True)
        self.server = StandInPeer(self.sharing)
        self.weights = Weights(weights.hub, weights.root, home, weights.repo, weights.contents, dict(weights.options))
        for program in ("swarm.py", "swarm_turns.py", "peers.py", "hub_pace.py"):
            (self.weights.home / program).write_bytes(program_file(program).read_bytes())

    def job(self, hosts: list[Host], patience_s: float = 1.0, **changes: Any) -> Path:
        """Its job in a swarm of these hosts."""
        others = [
            {"name": host.name, "addresses": ["127.0.0.1"], "port": host.server.port} for host in hosts if host != self
        ]
        fetchers = [host.name for host in hosts if not host.offers_all] or [self.name]
        sharing: dict[str, Any] = {"name": self.name, "key": KEY, "folder": str(self.sharing), "peers": others}
        sharing |= {"fetchers": fetchers if self.name in fetchers else [*fetchers, self.name], "patience_s": patience_s}
        return self.weights.job(**{"sharing": sharing, **changes})

    @property
    def offers_all(self) -> bool:
        return not (self.weights.home / "weights").exists() and any((self.sharing / "files").iterdir())

    def offer_all(self) -> None:
        """It has every file, and its server is up."""
        offer = Offer(PeerSharing(self.name, KEY, self.sharing, (self.name,), ()))
        for path, content in self.weights.contents.items():
            place = self.sharing / "whole" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            offer.add(hashlib.sha256(content).hexdigest(), place)
        offer.publish(fetching={}, hashing=[], claims=[], hub_bytes=0)

    @property
    def state(self) -> dict[str, Any]:
        """What it tells its peers."""
        found: dict[str, Any] = json.loads((self.sharing / "state" / f"{KEY}.json").read_text())
        return found


@pytest.fixture
def hosts(weights: Weights, tmp_path: Path) -> Iterator[Callable[[int], list[Host]]]:
    made: list[Host] = []

    def make(count: int) -> list[Host]:
        made.extend(Host(f"h{number}", weights, tmp_path / f"h{number}") for number in range(1, count + 1))
        return made

    yield make
    for host in made:
        host.server.end()


def from_hub(weights: Weights) -> int:
    """The bytes of content that the hub has sent."""
    return sum(entry["bytes"] for entry in weights.requests() if entry["method"] == "GET" and entry["status"] < 300)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out + err


def test_four_hosts_get_each_file_from_the_hub_once(hosts: Callable[[int], list[Host]], weights: Weights) -> None:
    four = hosts(4)
    weights.hub.faults(bytes_per_second=1_000_000)

    runs = [host.weights.start(host.job(four, 20.0)) for host in four]
    said = [ended(run) for run in runs]

    assert [code for code, _ in said] == [0, 0, 0, 0], said
    assert all(host.weights.fetched() for host in four)
    assert from_hub(weights) == sum(map(len, weights.contents.values()))
    assert all(sum(host.state["taken"].values()) == from_hub(weights) for host in four)


def test_a_host_without_a_route_to_the_hub_is_fed_by_its_peers(hosts: Callable[[int], list[Host]]) -> None:
    newcomer, whole = hosts(2)
    whole.offer_all()

    done = newcomer.weights.run(newcomer.job([newcomer, whole], hub=NOWHERE))

    assert done.returncode == 0, done.stderr
    assert newcomer.weights.fetched()
    assert set(newcomer.state["taken"]) == {"h2"}


def test_a_peer_that_sends_something_else_is_banned_and_told_and_the_hub_asked(
    hosts: Callable[[int], list[Host]], weights: Weights
) -> None:
    newcomer, liar = hosts(2)
    liar.offer_all()
    liar.server.faults["corrupt"] = 100

    done = newcomer.weights.run(newcomer.job([newcomer, liar]))

    assert done.returncode == 0, done.stderr
    assert newcomer.weights.fetched()
    assert "h2 is banned: it sent " in done.stderr and ", not the locked " in done.stderr
    assert "h2" in newcomer.state["banned"]
    assert from_hub(weights) == sum(map(len, weights.contents.values()))


def test_a_peer_that_has_not_what_it_says_keeps_nobody_from_the_hub(
    hosts: Callable[[int], list[Host]], weights: Weights
) -> None:
    newcomer, stale = hosts(2)
    stale.offer_all()
    for link in (stale.sharing / "files").iterdir():
        link.unlink()
    weights.hub.faults(latency_s=0.4)

    done = newcomer.weights.run(newcomer.job([newcomer, stale]))

    assert done.returncode == 0, done.stderr
    assert newcomer.weights.fetched()
    assert [entry["status"] for entry in weights.requests("model-00001.gguf")] == [302, 200]
    assert len(stale.server.files_asked()) < 10


def test_a_peer_that_gets_back_what_it_lacked_is_asked_for_it_again(hosts: Callable[[int], list[Host]]) -> None:
    newcomer, other = hosts(2)
    other.offer_all()
    job = newcomer.job([newcomer, other], hub=NOWHERE)
    (other.sharing / "files").rename(other.sharing / "away")
    run = newcomer.weights.start(job)
    wait_for(lambda: len(other.server.files_asked()) >= 3, "each file asked for in vain")
    (other.sharing / "away").rename(other.sharing / "files")

    code, said = ended(run)

    assert code == 0, said
    assert set(newcomer.state["taken"]) == {"h2"}


def test_what_is_whole_when_its_transfer_is_ended_is_kept(hosts: Callable[[int], list[Host]]) -> None:
    (host,) = hosts(1)
    fetch = fetch_weights.Fetch(load_job(host.job([host])))
    swarm = fetch.swarm = PeerDownload(fetch, 0)
    fetch.survey()
    for path, file in list(fetch.pending.items()):
        swarm.curls.begin(path, "", file.size)
        swarm.active[path] = ActiveTransfer(file, None, 0)
        fetch.part(file).write_bytes(host.weights.contents[path])
        swarm.stop(path)

    fetch.take_hashes(wait=True)
    swarm.close()

    assert not fetch.pending
    assert sorted(fetch.staged.entries) == sorted(host.weights.contents)


def test_what_was_sent_for_damaged_files_is_taken_and_passed_on(
    hosts: Callable[[int], list[Host]], weights: Weights
) -> None:
    both = hosts(2)
    for host in both:
        for path, content in weights.contents.items():
            damaged = host.weights.folder / path
            damaged.parent.mkdir(parents=True, exist_ok=True)
            damaged.write_bytes(bytes(len(content)))
    for host, path in zip(both, ("model-00001.gguf", "quants/model 00002+x.gguf"), strict=True):
        host.weights.part(path).parent.mkdir(parents=True)
        host.weights.part(path).write_bytes(weights.contents[path])
    both[0].weights.part("config.json").write_bytes(weights.contents["config.json"])

    said = [ended(run) for run in [host.weights.start(host.job(both, hub=NOWHERE)) for host in both]]

    assert [code for code, _ in said] == [0, 0], said
    assert all(host.weights.fetched() for host in both)
    assert [host.state["taken"] for host in both] == [{"h2": 250_000}, {"h1": 600_300}]
    assert [host.state["banned"] for host in both] == [{}, {}]


def test_a_peer_that_sends_more_than_the_file_has_is_stopped(
    hosts: Callable[[int], list[Host]], weights: Weights
) -> None:
    newcomer, flooder = hosts(2)
    flooder.offer_all()
    flooder.server.faults["excess"] = 100

    done = newcomer.weights.run(newcomer.job([newcomer, flooder]))

    assert done.returncode == 0, done.stderr
    assert newcomer.weights.fetched()
    assert from_hub(weights) == sum(map(len, weights.contents.values()))


def test_what_a_lost_peer_has_sent_is_continued_at_another(
    hosts: Callable[[int], list[Host]], weights: Weights
) -> None:
    newcomer, one, other = hosts(3)
    for host in (one, other):
        host.offer_all()
    one.server.faults["drop"] = 1

    done = newcomer.weights.run(newcomer.job([newcomer, one, other], hub=NOWHERE))

    assert done.returncode == 0, done.stderr
    assert newcomer.weights.fetched()
    assert any("Range" in headers for host in (one, other) for headers in host.server.files_asked())
    assert sum(newcomer.state["taken"].values()) == sum(map(len, weights.contents.values()))


def test_a_busy_peer_is_asked_again_and_the_hub_left_alone(
    hosts: Callable[[int], list[Host]], weights: Weights
) -> None:
    newcomer, busy = hosts(2)
    busy.offer_all()
    busy.server.faults["busy"] = 4

    done = newcomer.weights.run(newcomer.job([newcomer, busy]))

    assert done.returncode == 0, done.stderr
    assert from_hub(weights) == 0


def test_no_token_and_no_redirect_go_to_or_come_from_a_peer(
    hosts: Callable[[int], list[Host]], weights: Weights, tmp_path: Path
) -> None:
    newcomer, other = hosts(2)
    other.offer_all()
    other.server.faults["redirect"] = 1
    (tmp_path / "token").write_text("hf_secret\n")

    done = newcomer.weights.run(newcomer.job([newcomer, other], token_file=str(tmp_path / "token")))

    assert done.returncode == 0, done.stderr
    assert all("Authorization" not in headers for _, headers in other.server.asked)
    assert "/elsewhere" not in [path for path, _ in other.server.asked]


def test_a_peer_that_cannot_be_reached_is_named_and_costs_nothing_but_its_share_in_time(
    hosts: Callable[[int], list[Host]], weights: Weights
) -> None:
    alone, gone = hosts(2)
    gone.server.end()

    done = alone.weights.run(alone.job([alone, gone], 0.2))

    assert done.returncode == 0, done.stderr
    assert alone.weights.fetched()
    assert list(alone.state["unreachable"]) == ["h2"]
    assert "Connection refused" in alone.state["unreachable"]["h2"]


def test_who_takes_over_from_a_host_that_died_goes_on(hosts: Callable[[int], list[Host]], weights: Weights) -> None:
    survivor, dying = both = hosts(2)
    weights.hub.faults(bytes_per_second=300_000)
    first, second = (host.weights.start(host.job(both, 0.3)) for host in both)
    wait_for(lambda: dying.sharing.joinpath("state", f"{KEY}.json").exists() and dying.state["hub_bytes"] > 0, "a part")
    second.kill()
    second.communicate()
    dying.server.end()
    weights.hub.faults()

    code, said = ended(first)

    assert code == 0, said
    assert survivor.weights.fetched()


def test_nobody_to_take_anything_from_is_the_end(hosts: Callable[[int], list[Host]]) -> None:
    alone, other = hosts(2)

    done = alone.weights.run(alone.job([alone, other], 0.1, hub=NOWHERE, attempts=2))

    assert done.returncode == 1
    assert "gave up after " in done.stderr and "no peer has the missing parts" in done.stderr


def test_a_job_that_does_not_say_its_part_is_bad_input(hosts: Callable[[int], list[Host]]) -> None:
    (host,) = hosts(1)

    done = host.weights.run(host.weights.job(sharing={"name": "h1"}))

    assert done.returncode == 2
    assert done.stderr == "error: sharing: invalid: KeyError('peers')\n"
