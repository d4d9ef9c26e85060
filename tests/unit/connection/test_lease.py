"""One apply at a time per host: the scripts of a lease, run in a real shell."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest
from hypothesis import given

from rigup.connection import lease
from rigup.connection.lease import EXPIRES_SECONDS, NOBODYS, OURS, Holder, Lease, myself
from rigup.errors import HostFailed, Refused
from tests.hostile import is_harmless, mangled, read_safely
from tests.unit.local_host import LocalHost


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "run/lease"
    folder.mkdir(parents=True)
    monkeypatch.setattr(lease, "FOLDER", str(folder))
    monkeypatch.setattr(lease, "FILE", str(folder / "lease.json"))
    return folder / "lease.json"


OTHER = Holder("ada@desk", "2026-01-02 03:04:05 UTC", "another-machine", 4711, "1")
LOCKED = "locked by another rigup run: "
ENDED = "box: another rigup run changed this host after this run's lease ended"
TAKING = "box: taking the lease in "


def held_by(holder: Holder, place: Path, age_s: float = 0) -> None:
    place.write_text(json.dumps(holder._asdict()))
    seen(place, age_s)


def seen(place: Path, age_s: float) -> None:
    """Its last heartbeat was so long ago."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    place.with_name("lease.seen").write_text(f"{int(uptime - age_s)}\n")


def test_taken_and_given_back(place: Path) -> None:
    mine = Lease(LocalHost(), myself())
    mine.take()
    assert json.loads(place.read_text())["pid"] == os.getpid()
    mine.release()
    assert not place.exists()


def test_the_second_is_refused_and_told_who_is_first(place: Path) -> None:
    held_by(OTHER, place, age_s=5)
    with pytest.raises(Refused) as caught:
        Lease(LocalHost(), myself()).take()
    said = f"box: {LOCKED}ada@desk (process 4711) since 2026-01-02 03:04:05 UTC, last heartbeat"
    assert caught.value.message.startswith(said)
    assert caught.value.exit_code == 1
    assert json.loads(place.read_text())["who"] == "ada@desk"


def test_a_lease_that_nobody_renewed_is_dead(place: Path) -> None:
    held_by(OTHER, place, age_s=EXPIRES_SECONDS + 1)
    mine = Lease(LocalHost(), myself())
    mine.take()
    assert json.loads(place.read_text())["pid"] == os.getpid()
    mine.release()


def test_a_process_of_this_machine_that_is_gone_is_dead_at_once(place: Path) -> None:
    held_by(myself()._replace(pid=2**22 + 1), place)
    mine = Lease(LocalHost(), myself())
    mine.take()
    assert json.loads(place.read_text())["pid"] == os.getpid()
    mine.release()


def test_a_reused_process_number_does_not_keep_a_lease_alive(place: Path) -> None:
    held_by(myself()._replace(started="1"), place)
    mine = Lease(LocalHost(), myself())
    mine.take()
    mine.release()
    assert not place.exists()


def test_release_leaves_a_lease_of_somebody_else_alone(place: Path) -> None:
    mine = Lease(LocalHost(), myself())
    mine.take()
    held_by(OTHER, place)
    mine.release()
    assert json.loads(place.read_text())["who"] == "ada@desk"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{half",
        b"\xff\xfe\x00",
        b"[1]",
        b"[" * 4000,
        b"x" * 100_000,
        json.dumps({**OTHER._asdict(), "pid": "4711"}).encode(),
        json.dumps({**OTHER._asdict(), "pid": 10**3000}).encode(),
        json.dumps({**OTHER._asdict(), "who": "\x1b[2Jada"}).encode(),
    ],
    ids=["empty", "half", "binary", "list", "deep", "large", "number as text", "no process", "escapes"],
)
def test_a_lease_file_that_is_not_one_is_replaced(place: Path, content: bytes) -> None:
    place.write_bytes(content)
    seen(place, 5)
    mine = Lease(LocalHost(), myself())
    mine.take()
    assert json.loads(place.read_text())["pid"] == os.getpid()
    mine.release()


@given(mangled(OTHER._asdict()).map(json.dumps))
def test_whatever_a_lease_file_says_is_a_holder_or_none(text: str) -> None:
    found = read_safely(lambda: Holder.parse(text))
    assert found is None or (type(found.pid) is int and is_harmless(str(found)) and len(str(found)) < 600)


@pytest.mark.parametrize("content", [b"", b"never", b"99999999\n", b"9" * 30, b"-5", b"08", b"\xff"])
def test_a_sign_of_life_that_cannot_be_one_is_none(place: Path, content: bytes) -> None:
    held_by(OTHER, place)
    place.with_name("lease.seen").write_bytes(content)
    mine = Lease(LocalHost(), myself())
    mine.take()
    assert json.loads(place.read_text())["pid"] == os.getpid()
    mine.release()


def test_nobody_else_can_open_its_lock(place: Path) -> None:
    place.parent.chmod(0o777)
    mine = Lease(LocalHost(), myself())
    mine.take()
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in place.parent.iterdir()} == {0}
    mine.release()


def test_breaking_it_works_whatever_is_there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_TAKE", lease._TAKE.replace("flock -w 10", "flock -w 0.1"))
    held_by(OTHER, place)
    lock = place.with_name("lease.lock")
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Refused, match="box: another rigup run is taking the lease on this host"):
            Lease(LocalHost(), myself()).take()
        mine = Lease(LocalHost(), myself(), may_break=True)
        mine.take()
    assert mine.broken == "a run that was taking the lease"
    mine.release()
    lock.unlink()
    lock.mkdir()
    with pytest.raises(HostFailed, match=TAKING):
        Lease(LocalHost(), myself()).take()
    mine = Lease(LocalHost(), myself(), may_break=True)
    assert mine.take() not in (OURS, NOBODYS)
    assert json.loads(place.read_text())["pid"] == os.getpid()
    mine.release()


def test_a_lease_where_it_lay_before_still_counts(place: Path) -> None:
    before = place.parent.parent / "lease.json"
    held_by(OTHER, before, age_s=5)
    before.with_name("lease.lock").write_text("taken\n")
    with pytest.raises(Refused, match=f"{LOCKED}ada@desk"):
        Lease(LocalHost(), myself()).take()
    assert [path.name for path in before.parent.iterdir()] == ["lease"]
    mine = Lease(LocalHost(), myself(), may_break=True)
    mine.take()
    assert mine.broken.startswith("ada@desk")
    mine.release()


@pytest.mark.parametrize("date", [0, 2**31])
def test_a_clock_that_was_set_makes_no_lease_older_or_younger(place: Path, date: int) -> None:
    held_by(OTHER, place, age_s=5)
    os.utime(place, (date, date))
    with pytest.raises(Refused):
        Lease(LocalHost(), myself()).take()
    held_by(OTHER, place, age_s=EXPIRES_SECONDS + 1)
    os.utime(place, (date, date))
    mine = Lease(LocalHost(), myself())
    mine.take()
    mine.release()


def test_the_hint_says_how_to_get_at_it(place: Path) -> None:
    held_by(OTHER, place, age_s=5)
    with pytest.raises(Refused) as caught:
        Lease(LocalHost(), myself()).take()
    assert caught.value.hint == (
        "wait, or use rigup apply --break-lease; an abandoned lease expires 60 s after its last heartbeat"
    )


def test_a_lease_that_is_broken_is_named_and_its_holder_stops_when_it_renews(place: Path) -> None:
    first = Lease(LocalHost(), OTHER)
    first.take()
    first.renew()
    first.check()
    second = Lease(LocalHost(), myself(), may_break=True)
    second.take()
    assert second.broken.startswith("ada@desk (process 4711) since 2026-01-02 03:04:05 UTC, last heartbeat ")

    first.renew()
    with pytest.raises(Refused) as caught:
        first.check()
    me = myself()
    assert caught.value.message.startswith(f"box: {me.who} (process {me.pid}) since 20")
    assert caught.value.message.endswith(" broke this run's lease")
    first.release()
    assert json.loads(place.read_text())["pid"] == os.getpid()
    second.release()
    assert not place.exists()


def test_breaking_what_nobody_holds_is_taking_it(place: Path) -> None:
    mine = Lease(LocalHost(), myself(), may_break=True)
    mine.take()
    assert mine.broken == ""
    mine.release()


def test_claimed_again_after_a_reboot_and_after_a_long_wait(place: Path) -> None:
    mine = Lease(LocalHost(), OTHER)
    mine.take()
    seen(place, 40)
    assert mine.claim() == OURS
    for each in place.parent.iterdir():
        each.unlink()
    mine.renew()
    mine.check()
    assert mine.claim() == NOBODYS
    assert json.loads(place.read_text())["who"] == "ada@desk"
    with pytest.raises(Refused, match=r"last heartbeat [0-3] s ago"):
        Lease(LocalHost(), myself()).take()
    mine.release()


def test_a_host_that_somebody_else_took_meanwhile_is_not_claimed_back(place: Path) -> None:
    mine = Lease(LocalHost(), myself())
    mine.take()
    held_by(OTHER, place)
    with pytest.raises(Refused, match=f"{LOCKED}ada@desk"):
        mine.claim()
    mine.release()


def test_a_host_that_somebody_else_had_and_gave_back_is_not_this_runs_any_more(place: Path) -> None:
    mine = Lease(LocalHost(), myself())
    mine.take()
    seen(place, EXPIRES_SECONDS + 1)
    other = Lease(LocalHost(), OTHER)
    other.take()
    other.release()
    mine.renew()
    with pytest.raises(Refused) as caught:
        mine.check()
    assert caught.value.message == ENDED

    assert mine.claim() not in (OURS, NOBODYS)
    mine.check()
    mine.release()


def test_somebody_else_who_had_the_host_after_its_reboot_is_noticed(place: Path) -> None:
    mine = Lease(LocalHost(), myself())
    mine.take()
    for each in place.parent.iterdir():
        each.unlink()
    mine.claim_after_reboot()
    mine.check()
    for each in place.parent.iterdir():
        each.unlink()
    other = Lease(LocalHost(), OTHER)
    other.take()
    other.release()
    mine.claim_after_reboot()
    with pytest.raises(Refused) as caught:
        mine.check()
    assert caught.value.message == ENDED
    mine.release()


def test_a_lease_is_broken_once_and_not_again_from_the_run_that_broke_it_back(place: Path) -> None:
    held_by(OTHER, place)
    mine = Lease(LocalHost(), myself(), may_break=True)
    mine.take()
    held_by(OTHER, place)
    with pytest.raises(Refused, match=f"{LOCKED}ada@desk"):
        mine.claim()
    mine.release()


def test_a_holder_whose_process_is_hidden_from_us_lives(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bob = myself()._replace(who="bob@jump", started="5")

    def kill(pid: int, number: int) -> None:
        assert (pid, number) == (bob.pid, 0)
        raise PermissionError

    monkeypatch.setattr(lease, "_started", lambda pid: "")
    monkeypatch.setattr(os, "kill", kill)
    held_by(bob, place)
    with pytest.raises(Refused, match=f"{LOCKED}bob@jump"):
        Lease(LocalHost(), myself()).take()


@pytest.mark.parametrize("name", ["lease.seen", "lease.json.new", "lease.lock"])
def test_a_full_file_system_is_told_as_that(place: Path, name: str) -> None:
    place.with_name(name).symlink_to("/dev/full")
    with pytest.raises(HostFailed) as caught:
        Lease(LocalHost(), myself()).take()
    assert caught.value.message.endswith(f": {os.strerror(errno.ENOSPC)}")
    assert caught.value.hint == "on the host: df -h and df -hi show which file system is full"
    assert caught.value.message.startswith(f"{TAKING}{place.parent}: ")
