"""The states that a host exchanges with its peers: which host has which file, and which host is downloading it.

Each host of a swarm offers FOLDER/files/SHA256 (links to verified files) and FOLDER/state/KEY.json; serve_weights.py
serves them. States of peers only decide which peer to ask and which to wait for, within limits from the files' sizes
and the hub's speed; a file is accepted only if its hash is right.

    peers.py JOB    print the names of the peers of a download that answer now, as a JSON list

Part of fetch_weights.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __package__:
    from rigup.programs.weights.hub_pace import HubPace
    from rigup.programs.weights.weights_folder import EXIT_INPUT, FetchError, FetchJob, load_job, log
else:  # a host has the programs in one folder, without rigup, and no bytecode
    sys.dont_write_bytecode = True
    from hub_pace import HubPace  # type: ignore[import-not-found, no-redef]
    from weights_folder import EXIT_INPUT, FetchError, FetchJob, load_job, log  # type: ignore[import-not-found, no-redef]

ASK_TIMEOUT_S = 3.0
"""For one complete response from one address."""
FIRST_LOOK_S = 4.0
ASKED_AT_ONCE = 128
SILENT_AT_ONCE = 64
LARGEST_STATE = 4_000_000
LONGEST_REST_S = 60.0
LONGEST_BUSY_S = 600.0
MOST_LACKS = 3
HASHED_PER_S = 50e6
"""Bytes per second; a host that hashes more slowly is not waited for."""
MOST_REPEATED = 10
"""A peer may claim at most this many times the size of all files from the hub: more than its tries allow."""


@dataclass(frozen=True)
class Peer:
    """Another host of the swarm, and its possible addresses."""

    name: str
    addresses: tuple[str, ...]
    port: int


@dataclass(frozen=True)
class PeerSharing:
    """A host's part in a swarm. key: the checkpoint's. fetchers: all hosts that download, in an order that all share.

    patience_s: how long a file may make no progress on the host whose turn it is before the next host takes over.
    """

    name: str
    key: str
    folder: Path
    fetchers: tuple[str, ...]
    peers: tuple[Peer, ...]
    patience_s: float = 10.0

    @classmethod
    def of(cls, job: FetchJob) -> PeerSharing:
        """Reads the `sharing` part of a job that has one. Raises FetchError if it is invalid."""
        data = job.sharing or {}
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
        """Seconds between requests to a peer: longer with many peers."""
        return max(min(0.5, self.patience_s / 4), min(self.patience_s / 4, len(self.peers) / 10))


class FalsePeerClaim(ValueError):
    """A peer's state is impossible; the message continues "it ..."."""


@dataclass
class Deferral:
    """Since when a peer has claimed to be getting a file, and its count of bytes from the hub at that time."""

    since: float
    hub_bytes: int


@dataclass
class PeerView:
    """One peer as this host sees it. Times are `time.monotonic`.

    address: where it answered. seen: when it last answered. have: sha256 of the files that it offers. fetching: bytes
    received so far of each file that it gets from the hub. claims: files that it will get from the hub. hashing:
    complete files that it verifies. deferrals: when each of these claims began, by sha256; checked: when hashing began.
    Both are kept, so that a peer cannot restart the clock by pausing. most: the largest count claimed for each file.
    moved: when that count last grew. waiting: when to ask it again. busy: since when it has refused requests. absent:
    files that it claimed to have but did not: how often, and when to ask again; lacks: the total count for each file,
    so that a peer cannot claim it forever. offences: corrupt files that it contributed to. slow: why the hub is
    preferred to it. unheeded: why its downloads are not waited for. banned: why it is never asked again.
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
        """Applies a peer's state. Raises ValueError, KeyError or TypeError, and changes nothing, if it is invalid.

        sizes: of the checkpoint's files, by sha256; other files in the state are ignored. Raises FalsePeerClaim for
        counts that are larger than the file.
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
        for sha256 in {*fetching, *claims, *hashing}:
            self.deferrals.setdefault(sha256, Deferral(now, hub_bytes))
        for sha256 in hashing:
            self.checked.setdefault(sha256, now)
        self.have, self.claims, self.hashing, self.fetching = have, claims, hashing, fetching
        self.absent = {sha256: times for sha256, times in list(self.absent.items()) if sha256 in have}
        self.seen, self.problem = now, ""

    def waited(self, sha256: str, now: float, opened: float) -> float:
        """Seconds for which the peer has claimed that it will soon have a file; 0 if it does not claim that.

        opened: since when the file may be downloaded from the hub.
        """
        claimed = sha256 in self.fetching or sha256 in self.claims or sha256 in self.hashing
        return now - max(opened, self.deferrals[sha256].since) if claimed else 0.0

    def keeps_waiting(self, sha256: str, size: int, now: float, opened: float, patience_s: float, hub: HubPace) -> bool:
        """Whether the peer has been getting a file for longer than the hub would need for the bytes that it claims.

        False while this host does not know the hub's speed. The peer also gets time to hash a complete file.
        """
        claim = self.deferrals.get(sha256)
        if claim is None or not hub.rate:
            return False
        came = max(self.most.get(sha256, 0), self.hub_bytes - claim.hub_bytes)
        hashing_s = size / HASHED_PER_S if self.most.get(sha256, 0) == size or sha256 in self.hashing else 0.0
        return self.waited(sha256, now, opened) > patience_s + hashing_s + hub.allows(came)

    def answers(self, now: float, poll_s: float) -> bool:
        """Whether the peer has answered recently."""
        return now - self.seen < 4 * poll_s + 2 * ASK_TIMEOUT_S

    def offers(self, sha256: str, now: float) -> bool:
        """Whether to ask the peer for a file now."""
        _, again = self.absent.get(sha256, (0, 0.0))
        return sha256 in self.have and now >= max(self.waiting, again) and not self.banned

    def is_trusted_with(self, sha256: str) -> bool:
        """Whether to leave a file to this peer rather than the hub, even if the peer is busy now."""
        return (
            sha256 in self.have
            and sha256 not in self.absent
            and not (self.failures or self.slow or self.banned or self.lacks[sha256] >= MOST_LACKS)
        )

    def ban(self, why: str) -> None:
        """Takes nothing more from the peer, and ignores its state."""
        self.banned = why
        log(f"{self.name} is banned: it {why}")

    def rest(self, seconds: float) -> None:
        """Asks the peer for nothing during this time."""
        self.waiting = time.monotonic() + seconds

    def lacked(self, sha256: str) -> None:
        """The peer offered a file that it did not have: ask it less and less often for this file."""
        self.lacks[sha256] += 1
        times = self.absent.get(sha256, (0, 0.0))[0] + 1
        self.absent[sha256] = (times, time.monotonic() + _pause(times))

    def worked(self) -> None:
        """The peer delivered a file."""
        self.failures, self.busy = 0, 0.0

    def turned_away(self) -> None:
        """The peer is busy: ask it again soon, unless it has been busy for LONGEST_BUSY_S."""
        now = time.monotonic()
        self.busy = self.busy or now
        if now - self.busy > LONGEST_BUSY_S:
            self.failed(f"busy for {LONGEST_BUSY_S:.0f} s")
        else:
            self.rest(random.uniform(0.3, 0.8))

    def failed(self, problem: str) -> None:
        """The peer failed to deliver: ask it again later, with a longer pause each time."""
        self.failures += 1
        self.problem = problem
        self.rest(_pause(self.failures))


def _pause(times: int) -> float:
    """Seconds to wait after this many failures in a row."""
    return min(LONGEST_REST_S, 2.0 ** min(times, 10)) * random.uniform(0.75, 1.25)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{str(value)[:20]!r} is not a number of bytes")
    return value


def _known(value: Any, sizes: Mapping[str, int]) -> frozenset[str]:
    return frozenset(sha256 for sha256 in value if isinstance(sha256, str) and sha256 in sizes)


class Peers:
    """All peers; from `begin` to `end` a background thread asks each one independently for its state."""

    def __init__(self, sharing: PeerSharing, sizes: Mapping[str, int]) -> None:
        """sizes: of the checkpoint's files, by sha256."""
        self.sharing, self.sizes = sharing, sizes
        self.views = [PeerView(peer) for peer in sharing.peers]
        self._unasked = {view.name for view in self.views}
        self._asked_all, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._ask_all()), daemon=True)

    def begin(self) -> bool:
        """Starts asking; returns when every peer has been asked once, or after FIRST_LOOK_S.

        Returns whether it started: False if the peers are being asked already or there are none.
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
        """Asks one peer until it is banned. Peers that did not answer last time have a limit of their own."""
        answered = True
        while not self._stop.is_set() and not view.banned:
            async with rooms[answered]:
                answered = await self._ask(view)
            self._unasked.discard(view.name)
            if not self._unasked:
                self._asked_all.set()
            await asyncio.sleep(self.sharing.poll_s * random.uniform(0.75, 1.25))

    async def _ask(self, view: PeerView) -> bool:
        """Asks one peer once; returns whether it answered. Its view holds the state, or else the problem."""
        known = (view.address,) if view.address else view.peer.addresses
        for address in known:
            try:
                state = await asyncio.wait_for(ask(address, view.peer.port, self.sharing.key), ASK_TIMEOUT_S)
                if state["host"] != view.name:
                    raise OSError("another host answers")  # a host with the same address, or this host itself
                view.take(state, time.monotonic(), self.sizes)
                view.address = address
                return True
            except FalsePeerClaim as error:
                view.ban(str(error))
                break
            except Exception as error:  # a faulty response must not affect other peers
                view.problem = f"{address} port {view.peer.port}: {_reason(error)}"
        view.address = ""
        return False


def _reason(error: Exception) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return f"no answer within {ASK_TIMEOUT_S:g} s"
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else str(error) or type(error).__name__


async def ask(address: str, port: int, key: str) -> dict[str, Any]:
    """A peer's state of a checkpoint. Raises OSError, ValueError and the like if the response is not valid."""
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
    """The files and the state that this host offers to its peers."""

    def __init__(self, sharing: PeerSharing) -> None:
        self.sharing = sharing
        self.files, self.state = sharing.folder / "files", sharing.folder / "state" / f"{sharing.key}.json"
        self.have: set[str] = set()
        self.written = ""

    def add(self, sha256: str, path: Path) -> None:
        """Offers a verified file at its current path; if the link cannot be written, only the offer is lost."""
        with contextlib.suppress(OSError):
            self.files.mkdir(parents=True, exist_ok=True)
            new = self.files / f".{sha256}.{os.getpid()}"
            new.unlink(missing_ok=True)
            new.symlink_to(path)
            new.replace(self.files / sha256)
            self.have.add(sha256)

    def remove(self, sha256: str) -> None:
        """Stops offering a file."""
        self.have.discard(sha256)
        with contextlib.suppress(OSError):
            (self.files / sha256).unlink(missing_ok=True)

    def publish(self, **more: Any) -> None:
        """Writes the state if it has changed."""
        text = json.dumps({"host": self.sharing.name, "have": sorted(self.have), **more})
        if text == self.written:
            return
        with contextlib.suppress(OSError):
            self.state.parent.mkdir(parents=True, exist_ok=True)
            new = self.state.with_suffix(".new")
            new.write_text(text)
            new.replace(self.state)
            self.written = text


def answering(job: FetchJob) -> list[str]:
    """The names of the peers that answer when each is asked once, for at most FIRST_LOOK_S."""
    peers = Peers(PeerSharing.of(job), {file.sha256: file.size for file in job.files})
    peers.begin()
    peers.end()
    return [view.name for view in peers.views if view.seen > float("-inf")]


if __name__ == "__main__":
    print(json.dumps(answering(load_job(Path(sys.argv[1])))))
