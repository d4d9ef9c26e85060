"""Who asks the hub for what: every host must come to the same answer by itself."""

from __future__ import annotations

from rigup.programs.weights import swarm_turns as order

HOSTS = ("a", "b", "c")


def test_the_hubs_bytes_are_split_evenly() -> None:
    files = [("large", 90), ("m1", 50), ("m2", 40), ("s1", 20), ("s2", 30), ("s3", 10)]

    owners = order.owners(files, HOSTS)

    loads = [sum(size for path, size in files if owners[path] == index) for index in range(3)]
    assert sorted(loads) == [70, 80, 90]


def test_the_order_in_which_files_are_listed_decides_nothing() -> None:
    files = [(f"f{index}", 10 * (index % 3)) for index in range(10)]

    assert order.owners(files, HOSTS) == order.owners(files[::-1], HOSTS)


def test_every_host_has_a_turn_of_its_own_for_a_file() -> None:
    assert [order.rank(1, mine, 3) for mine in range(3)] == [2, 0, 1]


def test_the_next_host_takes_over_when_the_one_before_had_its_time() -> None:
    assert order.may_ask_hub(0, 0.0, 10.0)
    assert not order.may_ask_hub(1, 9.9, 10.0) and order.may_ask_hub(1, 10.0, 10.0)
    assert not order.may_ask_hub(2, 19.9, 10.0) and order.may_ask_hub(2, 20.0, 10.0)


def test_all_hosts_together_ask_the_hub_for_as_much_at_a_time_as_one_would() -> None:
    files = [(f"f{size}", size) for size in (1, 5, 3, 4, 2)]
    undone = [path for path in order.owners(files, HOSTS) if path != "f5"]

    assert order.opened(undone, 2) == {"f4", "f3"}
    assert order.opened(undone, 10) == {"f1", "f2", "f3", "f4"}


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
