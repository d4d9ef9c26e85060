"""To which releases the hosts of a service go back, and where they wait for one another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gevent
import pytest

from rigup.errors import HostFailed
from rigup.operations.multinode import releases
from rigup.operations.multinode.barrier import Barrier, BarrierState
from rigup.operations.multinode.releases import GroupMember, MemberState, belonging_together
from rigup.operations.primitives import remote

HOSTS = ("a", "b")


def stand(now: str | None, **earlier: str) -> MemberState:
    """earlier: by number ("r1"), the whole that it is a part of; "alone" for none."""
    of = {number.removeprefix("r"): "" if whole == "alone" else whole for number, whole in earlier.items()}
    return MemberState(now, of)


@pytest.mark.parametrize(
    ("stands", "back"),
    [
        pytest.param((stand("1", r1="x"), stand("4", r4="x")), ("1", "4"), id="what both ran, whatever its number"),
        pytest.param((stand("2", r1="x", r2="y"), stand("3", r2="x")), ("1", "2"), id="the newest that both have"),
        pytest.param((stand("2", r1="x"), stand("2", r1="y")), (None, None), id="nothing belongs together"),
        pytest.param((stand(None), stand(None)), (None, None), id="nothing was there"),
        pytest.param((stand("1", r1="alone"), stand("1", r1="alone")), ("1", "1"), id="each served alone"),
        pytest.param((stand("1", r1="alone"), stand(None)), ("1", None), id="one served alone, the other is new"),
        pytest.param((stand("2", r1="x", r2="alone"), stand("2", r1="x", r2="alone")), ("2", "2"), id="alone of late"),
        pytest.param((stand("1", r1="x"), stand(None)), (None, None), id="a host was replaced by a bare one"),
        pytest.param((stand("3", r1="x", r2="y"), stand("3", r1="x", r2="y")), ("2", "2"), id="now never answered"),
        pytest.param((stand("3", r1="alone"), stand("3", r1="alone")), ("1", "1"), id="the first try was cut short"),
    ],
)
def test_hosts_go_back_to_what_belongs_together(
    stands: tuple[MemberState, MemberState], back: tuple[str | None, str | None]
) -> None:
    assert belonging_together(dict(zip(HOSTS, stands, strict=True))) == dict(zip(HOSTS, back, strict=True))


def both(first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
    """What two hosts' greenlets end with."""
    greenlets = [gevent.spawn(first), gevent.spawn(second)]
    gevent.joinall(greenlets, timeout=60)
    assert all(greenlet.dead for greenlet in greenlets), "somebody waits for good"
    return [greenlet.value if greenlet.successful() else greenlet.exception for greenlet in greenlets]


def test_those_who_meet_go_on_when_all_have_said_something() -> None:
    place, order = Barrier(HOSTS), list[str]()

    def late() -> BarrierState:
        gevent.sleep(0)
        order.append("b arrives")
        return place.wait("b", "step", 2)

    def early() -> BarrierState:
        told = place.wait("a", "step", 1)
        order.append("a goes on")
        return told

    assert [told.values for told in both(early, late)] == [{"a": 1, "b": 2}] * 2
    assert order == ["b arrives", "a goes on"]


def test_who_has_left_keeps_nobody_waiting() -> None:
    place = Barrier(HOSTS)
    told, _ = both(lambda: place.wait("a", "step", 1), lambda: place.leave("b", "b: its disk is full"))
    assert told == BarrierState({"a": 1}, {"b": "b: its disk is full"})
    place.begin({})
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.05):
        place.wait("a", "step", 1)


def test_what_was_said_before_leaving_counts() -> None:
    place = Barrier(HOSTS)
    place.post("b", "step", 2)
    place.leave("b", "b: failed later")
    assert place.wait("a", "step", 1) == BarrierState({"a": 1, "b": 2}, {})
    assert place.wait("a", "next", 1) == BarrierState({"a": 1}, {"b": "b: failed later"})


def part(place: Barrier, rank: int) -> GroupMember:
    return GroupMember("chat", place, HOSTS, rank, {"b": "192.0.2.2"}, 28000, lambda host, manifest: None)


class Host:
    """Stands for one of pyinfra's: nothing but a name is asked of it."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_one_that_needs_a_change_makes_both_change() -> None:
    place = Barrier(HOSTS)
    assert both(lambda: part(place, 0).agreed(Host("a"), False), lambda: part(place, 1).agreed(Host("b"), True)) == [
        True,
        True,
    ]


def test_one_that_failed_before_keeps_the_other_from_stopping() -> None:
    place = Barrier(HOSTS)
    error, _ = both(
        lambda: part(place, 0).agreed(Host("a"), True), lambda: place.leave("b", "b: weights: its disk is full")
    )
    assert isinstance(error, HostFailed)
    assert error.message == "a: chat spans a and b; none of them was stopped: b: weights: its disk is full"


def test_who_only_looks_goes_on_without_one_that_failed() -> None:
    place = Barrier(HOSTS)
    place.leave("b", "b: it is unreachable")
    assert replace(part(place, 0), read_only=True).agreed(Host("a"), True) is True


def test_one_that_was_right_and_is_done_is_not_changed_behind_its_back() -> None:
    place = Barrier(HOSTS)
    place.leave("b")
    assert part(place, 0).agreed(Host("a"), False) is False
    place.begin({"b": ""})
    with pytest.raises(HostFailed) as raised:
        part(place, 0).agreed(Host("a"), True)
    assert raised.value.message == "a: chat spans a and b, but changed after the comparison"


def test_the_head_gives_up_once_another_host_has_failed() -> None:
    place = Barrier(HOSTS)
    head = part(place, 0)
    assert head.given_up() == ""
    place.post("b", "chat: answered", "b: chat: rigup-chat.service is failed")
    assert head.given_up() == "b: chat: rigup-chat.service is failed"


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done on two hosts that have release 1, in order; release 2 is the next."""
    order = list[str]()

    def run(host: Host, *words: str, timeout: float = 0.0) -> None:
        gevent.sleep(0.05 if host.name == "a" else 0)  # the head has requests in flight
        order.append(f"{host.name} {'stopped' if 'stop' in words else 'left'}")

    held = replace(stand("1", r1="x"), held=True)
    monkeypatch.setattr(
        releases, "_state_of", lambda host, service, number: held if number == "1" else stand("1", r1="x")
    )
    monkeypatch.setattr(releases, "stop_limit", lambda host: 1.0)
    monkeypatch.setattr(releases, "explained", lambda host, service, began, why: why)
    monkeypatch.setattr(remote, "run", run)
    monkeypatch.setattr(releases, "switch", lambda host, service, number: order.append(f"{host.name} started"))
    monkeypatch.setattr(releases, "trouble", lambda host, unit: "")
    monkeypatch.setattr(releases, "restarted", lambda host, unit: True)
    monkeypatch.setattr(releases, "mark_healthy", lambda host, service, number: None)
    monkeypatch.setattr(releases, "state_of", lambda host, kind: kind())
    return order


def test_the_head_stops_before_the_others_and_starts_after_them(order: list[str]) -> None:
    place = Barrier(HOSTS)
    done = both(
        lambda: part(place, 0).change(Host("a"), "2", lambda host: None, "starting"),
        lambda: part(place, 1).change(Host("b"), "2", lambda host: None, "starting"),
    )
    assert done == [None, None]
    assert order == ["a stopped", "b stopped", "b started", "a started"]


def test_a_release_of_several_hosts_that_has_answered_before_stays(order: list[str]) -> None:
    def wrong(host: Host) -> None:
        raise HostFailed("a: chat says Der Der", "go back")

    place = Barrier(HOSTS)
    first, second = both(
        lambda: part(place, 0).change(Host("a"), "1", wrong, "starting"),
        lambda: part(place, 1).change(Host("b"), "1", wrong, "starting"),
    )
    assert first.message == f"a: chat says Der Der; {releases.stays('1')}"
    assert first.hint == "go back"
    assert second.message.startswith("b: a: chat says Der Der; release 1 stays")
    assert order[:4] == ["a stopped", "b stopped", "b started", "a started"]
    assert sorted(order[4:]) == ["a left", "b left"]
