"""Who asks the hub for what: every host must come to the same answer by itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rigup.programs.weights import swarm_turns as order
from rigup.programs.weights.peers import Peer, PeerSharing, PeerView
from rigup.programs.weights.swarm_turns import SwarmTurns
from rigup.programs.weights.weights_folder import File

HOSTS = ("a", "b", "c")
FILE = File("f", 1, "0")


def turns(name: str) -> SwarmTurns:
    """What a host knows whose peers all answer, with no file."""
    peers = tuple(Peer(other, (), 1) for other in HOSTS if other != name)
    found = SwarmTurns(PeerSharing(name, "k1", Path(), HOSTS, peers, patience_s=10.0), [FILE])
    found.live = [PeerView(peer) for peer in peers]
    return found


def test_the_hubs_bytes_are_split_evenly() -> None:
    files = [("large", 90), ("m1", 50), ("m2", 40), ("s1", 20), ("s2", 30), ("s3", 10)]

    owners = order.owners(files, HOSTS)

    loads = [sum(size for path, size in files if owners[path] == index) for index in range(3)]
    assert sorted(loads) == [70, 80, 90]


def test_the_order_in_which_files_are_listed_decides_nothing() -> None:
    files = [(f"f{index}", 10 * (index % 3)) for index in range(10)]

    assert order.owners(files, HOSTS) == order.owners(files[::-1], HOSTS)


def test_every_host_has_a_turn_of_its_own_for_a_file() -> None:
    assert [[turns(own).rank(FILE, name) for name in HOSTS] for own in HOSTS] == [[0, 1, 2]] * 3
    assert [turns(name).turn(FILE) for name in HOSTS] == [0, 1, 2]


@pytest.mark.parametrize(("name", "waits_s"), [("b", 10.0), ("c", 20.0)])
def test_the_next_host_takes_over_when_the_one_before_had_its_time(name: str, waits_s: float) -> None:
    mine = turns(name)
    assert not mine.is_next(FILE, 0) and turns("a").is_next(FILE, 0)
    mine.began = time.monotonic() - waits_s + 5
    assert not mine.is_next(FILE, 0)
    mine.began = time.monotonic() - waits_s
    assert mine.is_next(FILE, 0)


def test_of_two_that_get_the_same_file_exactly_one_gives_way() -> None:
    for one, other in (((5, 0), (3, 1)), ((3, 0), (5, 1)), ((4, 0), (4, 1))):
        assert order.gives_way(one, [other]) != order.gives_way(other, [one])
    assert not order.gives_way((0, 2), [])


def test_what_fewest_have_is_taken_first_and_what_nobody_has_not_at_all() -> None:
    place = {"x": 0, "y": 1, "z": 2, "w": 3}

    assert order.rarest_first(place, {"x": 3, "y": 1, "z": 1}, place, 4) == ["y", "z", "x"]


def test_hosts_begin_at_different_files() -> None:
    paths = [f"f{index}" for index in range(6)]
    orders = [order.places(paths, mine, 3) for mine in range(3)]

    first = [min(paths, key=place.__getitem__) for place in orders]

    assert first == ["f0", "f2", "f4"]
