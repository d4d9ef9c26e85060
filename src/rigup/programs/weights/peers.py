"""What a host tells its peers of a checkpoint, and what they tell it: who has which file, who is getting it.

Each host of a swarm offers FOLDER/files/SHA256 (links to verified files) and FOLDER/state/KEY.json; serve_weights.py
serves them. What peers say only decides whom to ask and whom to wait for, within what the files' sizes and the hub's
pace allow; a file counts when its hash is right, whoever sent it.
Part of fetch_weights.py. Python 3.10 standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __package__:
    from rigup.programs.weights.hub_pace import HubPace
    from rigup.programs.weights.weights_folder import EXIT_INPUT, FetchError
else:
    from hub_pace import HubPace  # type: ignore[import-not-found, no-redef]
    from weights_folder import EXIT_INPUT, FetchError  # type: ignore[import-not-found, no-redef]

ASK_TIMEOUT_S = 3.0
"""For one answer at one address, all of it."""
FIRST_LOOK_S = 4.0
ASKED_AT_ONCE = 128
SILENT_AT_ONCE = 64
LARGEST_STATE = 4_000_000
LONGEST_REST_S = 60.0
LONGEST_BUSY_S = 600.0
MOST_LACKS = 3
HASHED_PER_S = 50e6
"""Bytes; what a host that takes longer is not waited for."""
MOST_REPEATED = 10
"""So many times all files' bytes a peer may have got from the hub: more than its tries allow."""


@dataclass(frozen=True)
class Peer:
    """Another host of the swarm, and the addresses at which it may be found."""

    name: str
    addresses: tuple[str, ...]
    port: int


@dataclass(frozen=True)
class PeerSharing:
    """A host's part in a swarm. key: of the checkpoint. fetchers: every host that fetches, in an order that all share.

    patience_s: how long a file may lie still at whoever is to get it from the hub before the next one does.
    """

    name: str
    key: str
    folder: Path
    fetchers: tuple[str, ...]
    peers: tuple[Peer, ...]
    patience_s: float = 10.0

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> PeerSharing:
        """From a job. Raises FetchError where it is not as described."""
        try:
            peers = tuple(
                Peer(str(each["name"]), tuple(map(str, each["addresses"])), int(each["port"])) for each in data["peers"]
            )
            named = {"folder": Path(data["folder"]), "fetchers": tuple(data["fetchers"]), "peers": peers}
            sharing = cls(**{**data, **named})
            sharing.fetchers.index(sharing.name)
        except (KeyError, TypeError, ValueError) as error:
            raise FetchError(EXIT_INPUT, f"sharing: invalid: {error!r}") from None
        return sharing

    @property
    def poll_s(self) -> float:
        """How often peers are asked: more rarely where they are many."""
        return max(min(0.5, self.patience_s / 4), min(self.patience_s / 4, len(self.peers) / 10))


class FalsePeerClaim(ValueError):
    """A peer says what cannot be; the message continues "it ..."."""


@dataclass
class Deferral:
    """Since when a peer says that it is getting a file, and what its count of bytes from the hub was then."""

    since: float
    hub_bytes: int


@dataclass
class PeerView:
    """One peer as it is seen from here. Times are `time.monotonic`.

    address: where it answered. seen: when it did. have: sha256 of what it offers. fetching: bytes so far of what it
    gets from the hub. claims: what it will get from there. hashing: what it checks that came whole. deferrals: of
    all of these, by sha256, and checked: since when it hashes; kept for good, so that nobody begins again by saying
    nothing for a while. most: the most that it has said of each file. moved: when that last grew. waiting: until
    when it is left alone. busy: since when it has turned us away. absent: what it said that it has and had not: how
    often, and until when it is not asked for it; lacks: how often in all, so that no host says again and again that
    it has it. offences: corrupt files that it had a part in. slow: why the hub is preferred to it. unheeded: why
    what it gets is not waited for. banned: why it is left alone for good.
    """

    peer: Peer
    address: str = ""
    seen: float = float("-inf")
    have: frozenset[str] = frozenset()
    fetching: dict[str, int] = field(default_factory=dict)
    claims: frozenset[str] = frozenset()
    hashing: frozenset[str] = frozenset()
    deferrals: dict[str, Deferral] = field(default_factory=dict)
    checked: dict[str, float] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)
    hub_bytes: int = -1
    hub_moved: float = float("-inf")
    waiting: float = 0.0
    busy: float = 0.0
    absent: dict[str, tuple[int, float]] = field(default_factory=dict)
    lacks: Counter[str] = field(default_factory=Counter)
    failures: int = 0
    offences: int = 0
    problem: str = ""
    slow: str = ""
    unheeded: str = ""
    banned: str = ""

    @property
    def name(self) -> str:
        """The peer's name."""
        return self.peer.name

    def take(self, state: Mapping[str, Any], now: float, sizes: Mapping[str, int]) -> None:
        """Takes in what it said: all of it, or nothing and ValueError and the like where that makes no sense.

        sizes: of the checkpoint's files, by sha256; what it says of others is passed over. Raises PeerLies for counts
        that no file has.
        """
        fetching = {sha256: _count(state["fetching"][sha256]) for sha256 in sizes if sha256 in state["fetching"]}
        have, claims, hashing = (_known(state[key], sizes) for key in ("have", "claims", "hashing"))
        hub_bytes = _count(state["hub_bytes"])
        for sha256, count in fetching.items():
            if count > sizes[sha256]:
                raise FalsePeerClaim(f"says that it has {count} bytes of a file of {sizes[sha256]}")
        if hub_bytes > MOST_REPEATED * sum(sizes.values()):
            raise FalsePeerClaim(f"says that it got {hub_bytes} bytes from the hub, of files of {sum(sizes.values())}")
        for sha256, count in fetching.items():
            if count > self.most.get(sha256, -1):
                self.most[sha256], self.moved[sha256] = count, now
        if hub_bytes > self.hub_bytes:
            self.hub_bytes, self.hub_moved = hub_bytes, now
        for sha256 in {*fetching, *claims, *hashing} - have:
            self.deferrals.setdefault(sha256, Deferral(now, hub_bytes))
        for sha256 in hashing:
            self.checked.setdefault(sha256, now)
        self.have, self.claims, self.hashing, self.fetching = have, claims, hashing, fetching
        self.absent = {sha256: times for sha256, times in list(self.absent.items()) if sha256 in have}
        self.seen, self.problem = now, ""

    def is_getting(self, sha256: str) -> bool:
        """Whether it says that it is about to have a file."""
        return sha256 in self.fetching or sha256 in self.claims or sha256 in self.hashing

    def keeps_waiting(self, sha256: str, size: int, now: float, opened: float, patience_s: float, hub: HubPace) -> bool:
        """Whether it has been getting a file for longer than the hub would take for what it says to have got since.

        opened: since when it may be got from there. Never where it is not known what the hub gives here. What
        has come it may also hash.
        """
        if not self.is_getting(sha256) or not hub.rate:
            return False
        said = self.deferrals[sha256]
        came = max(self.most.get(sha256, 0), self.hub_bytes - said.hub_bytes)
        hashing_s = size / HASHED_PER_S if self.most.get(sha256, 0) == size or sha256 in self.hashing else 0.0
        return now - max(opened, said.since) > patience_s + hashing_s + hub.allows(came)

    def makes_wait(self, sha256: str, now: float, opened: float, patience_s: float) -> bool:
        """Whether it has been getting a file for so long that it is to be compared with the hub."""
        return self.is_getting(sha256) and now - max(opened, self.deferrals[sha256].since) > patience_s

    def answers(self, now: float, poll_s: float) -> bool:
        """Whether it has been heard of lately."""
        return now - self.seen < 4 * poll_s + 2 * ASK_TIMEOUT_S

    def offers(self, sha256: str, now: float) -> bool:
        """Whether to ask it for a file now."""
        _, again = self.absent.get(sha256, (0, 0.0))
        return sha256 in self.have and now >= max(self.waiting, again) and not self.banned

    def is_trusted_with(self, sha256: str) -> bool:
        """Whether the hub can be left alone for a file that it offers, though it may be busy now."""
        return (
            sha256 in self.have
            and sha256 not in self.absent
            and not (self.failures or self.slow or self.banned or self.lacks[sha256] >= MOST_LACKS)
        )

    def rest(self, seconds: float) -> None:
        """Leaves it alone for a while."""
        self.waiting = time.monotonic() + seconds

    def lacked(self, sha256: str) -> None:
        """It says that it has a file and has not: it is asked for it more and more rarely, for others as before."""
        self.lacks[sha256] += 1
        times = self.absent.get(sha256, (0, 0.0))[0] + 1
        self.absent[sha256] = (times, time.monotonic() + _pause(times))

    def worked(self) -> None:
        """It did what it said."""
        self.failures, self.busy = 0, 0.0

    def turned_away(self) -> None:
        """It has as much to do as it takes on: soon again, unless it has been saying so for long."""
        now = time.monotonic()
        self.busy = self.busy or now
        if now - self.busy > LONGEST_BUSY_S:
            self.failed(f"busy for {LONGEST_BUSY_S:.0f} s")
        else:
            self.rest(random.uniform(0.3, 0.8))

    def failed(self, problem: str) -> None:
        """It did not do what it said: it is left alone, longer each time."""
        self.failures += 1
        self.problem = problem
        self.rest(_pause(self.failures))


def _pause(times: int) -> float:
    """Seconds to wait after something has gone wrong so many times."""
    return min(LONGEST_REST_S, 2.0 ** min(times, 10)) * random.uniform(0.75, 1.25)


def _count(said: Any) -> int:
    if isinstance(said, bool) or not isinstance(said, int) or said < 0:
        raise ValueError(f"{str(said)[:20]!r} is not a number of bytes")
    return said


def _known(said: Any, sizes: Mapping[str, int]) -> frozenset[str]:
    return frozenset(sha256 for sha256 in said if isinstance(sha256, str) and sha256 in sizes)


class Peers:
    """All of them, asked in the background from `begin` to `end`, each by its own clock: none waits for others."""

    def __init__(self, sharing: PeerSharing, sizes: Mapping[str, int]) -> None:
        """sizes: of the checkpoint's files, by sha256."""
        self.sharing, self.sizes = sharing, sizes
        self.views = [PeerView(peer) for peer in sharing.peers]
        self._unasked = {view.name for view in self.views}
        self._asked_all, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._ask_all()), daemon=True)

    def begin(self) -> bool:
        """Starts to ask; returns when everyone has been asked once, after a while in any case.

        Returns whether it has: not where they are being asked already.
        """
        if not self.views or self._thread.ident is not None:
            return False
        self._thread.start()
        self._asked_all.wait(FIRST_LOOK_S)
        return True

    def end(self) -> None:
        """Stops asking."""
        self._stop.set()

    async def _ask_all(self) -> None:
        rooms = {True: asyncio.Semaphore(ASKED_AT_ONCE), False: asyncio.Semaphore(SILENT_AT_ONCE)}
        await asyncio.gather(*(self._ask_on(view, rooms) for view in self.views))

    async def _ask_on(self, view: PeerView, rooms: Mapping[bool, asyncio.Semaphore]) -> None:
        """Asks one again and again. Those who did not answer last time take no room from those who did."""
        answered = True
        while not self._stop.is_set():
            async with rooms[answered]:
                answered = await self._ask(view)
            self._unasked.discard(view.name)
            if not self._unasked:
                self._asked_all.set()
            await asyncio.sleep(self.sharing.poll_s * random.uniform(0.75, 1.25))

    async def _ask(self, view: PeerView) -> bool:
        """Whether it answered; what it said is in the view then, else why not."""
        known = (view.address,) if view.address else view.peer.addresses
        for address in known:
            try:
                state = await asyncio.wait_for(ask(address, view.peer.port, self.sharing.key), ASK_TIMEOUT_S)
                if state["host"] != view.name:
                    raise OSError("another host answers")  # it has this address too, or it is this one itself
                view.take(state, time.monotonic(), self.sizes)
                view.address = address
                return True
            except FalsePeerClaim as error:
                view.banned = str(error)
                break
            except Exception as error:  # whatever it sends, only it is to suffer
                view.problem = f"{address} port {view.peer.port}: {_reason(error)}"
        view.address = ""
        return False


def _reason(error: Exception) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return f"no answer within {ASK_TIMEOUT_S:g} s"
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else str(error) or type(error).__name__


async def ask(address: str, port: int, key: str) -> dict[str, Any]:
    """What a peer says of a checkpoint. Raises OSError and the like where it does not answer well."""
    reader, writer = await asyncio.open_connection(address, port)
    try:
        host = f"[{address}]" if ":" in address else address
        writer.write(f"GET /state/{key}.json HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
        answer = bytearray()
        while len(answer) < LARGEST_STATE and (data := await reader.read(2**16)):
            answer += data
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    protocol, _, status = head.partition(b" ")
    if not protocol.startswith(b"HTTP/"):
        raise ValueError("the peer is not a web server")
    if status[:3] != b"200":
        raise OSError(f"answers {status[:3].decode(errors='replace')}")
    state: dict[str, Any] = json.loads(body)
    return state


class Offer:
    """What this host offers its peers: links to verified files, and its state."""

    def __init__(self, sharing: PeerSharing) -> None:
        self.sharing = sharing
        self.files, self.state = sharing.folder / "files", sharing.folder / "state" / f"{sharing.key}.json"
        self.have: set[str] = set()
        self.written = ""

    def add(self, sha256: str, path: Path) -> None:
        """Offers a verified file, where it lies now; a disk that has no room for the link costs the offer alone."""
        with contextlib.suppress(OSError):
            self.files.mkdir(parents=True, exist_ok=True)
            new = self.files / f".{sha256}.{os.getpid()}"
            new.unlink(missing_ok=True)
            new.symlink_to(path)
            new.replace(self.files / sha256)
            self.have.add(sha256)

    def remove(self, sha256: str) -> None:
        """Offers it no more."""
        self.have.discard(sha256)
        with contextlib.suppress(OSError):
            (self.files / sha256).unlink(missing_ok=True)

    def publish(self, **more: Any) -> None:
        """Writes the state, where it is another than last time."""
        text = json.dumps({"host": self.sharing.name, "have": sorted(self.have), **more})
        if text == self.written:
            return
        with contextlib.suppress(OSError):
            self.state.parent.mkdir(parents=True, exist_ok=True)
            new = self.state.with_suffix(".new")
            new.write_text(text)
            new.replace(self.state)
            self.written = text
