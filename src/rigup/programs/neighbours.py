"""What a host tells its neighbours of a checkpoint, and what they tell it: who has which file, who is getting it.

Each host of a swarm offers FOLDER/files/SHA256 (links to verified files) and FOLDER/state/KEY.json; serve_weights.py
serves them. What neighbours say only decides whom to ask; a file counts when its hash is right, whoever sent it.
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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __package__:
    from rigup.programs.weights_folder import EXIT_INPUT, FetchError
else:
    from weights_folder import EXIT_INPUT, FetchError  # type: ignore[import-not-found, no-redef]

ASK_TIMEOUT_S = 3.0
"""For one answer at one address, all of it."""
FIRST_LOOK_S = 4.0
ASKED_AT_ONCE = 128
SILENT_AT_ONCE = 64
LARGEST_STATE = 4_000_000
LONGEST_REST_S = 60.0
LONGEST_BUSY_S = 600.0


@dataclass(frozen=True)
class Neighbour:
    """Another host of the swarm, and the addresses at which it may be found."""

    name: str
    addresses: tuple[str, ...]
    port: int


@dataclass(frozen=True)
class Sharing:
    """A host's part in a swarm. key: of the checkpoint. fetchers: every host that fetches, in an order that all share.

    patience_s: how long a file may lie still at whoever is to get it from the hub before the next one does.
    """

    name: str
    key: str
    folder: Path
    fetchers: tuple[str, ...]
    neighbours: tuple[Neighbour, ...]
    patience_s: float = 10.0

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Sharing:
        """From a job. Raises FetchError where it is not as described."""
        try:
            neighbours = tuple(
                Neighbour(str(each["name"]), tuple(map(str, each["addresses"])), int(each["port"]))
                for each in data["neighbours"]
            )
            named = {"folder": Path(data["folder"]), "fetchers": tuple(data["fetchers"]), "neighbours": neighbours}
            sharing = cls(**{**data, **named})
            sharing.fetchers.index(sharing.name)
        except (KeyError, TypeError, ValueError) as error:
            raise FetchError(EXIT_INPUT, f"sharing: not as it should be: {error!r}") from None
        return sharing

    @property
    def poll_s(self) -> float:
        """How often neighbours are asked: more rarely where they are many."""
        return max(min(0.5, self.patience_s / 4), min(self.patience_s / 4, len(self.neighbours) / 10))


@dataclass
class View:
    """One neighbour as it is seen from here. Times are `time.monotonic`.

    address: where it answered. seen: when it did. have: sha256 of what it offers. fetching: bytes so far of what it
    gets from the hub. moved: when each of these last grew. hashing: since when it checks what came whole.
    claims: what it will get from the hub. waiting: until when it is left alone. busy: since when it has turned us away.
    absent: what it said that it has and had not: how often, and until when it is not asked for it. shunned: why it is
    left alone for good.
    """

    neighbour: Neighbour
    address: str = ""
    seen: float = float("-inf")
    have: frozenset[str] = frozenset()
    fetching: dict[str, int] = field(default_factory=dict)
    claims: frozenset[str] = frozenset()
    moved: dict[str, float] = field(default_factory=dict)
    hashing: dict[str, float] = field(default_factory=dict)
    hub_bytes: int = -1
    hub_moved: float = float("-inf")
    waiting: float = 0.0
    busy: float = 0.0
    absent: dict[str, tuple[int, float]] = field(default_factory=dict)
    failures: int = 0
    problem: str = ""
    shunned: str = ""

    @property
    def name(self) -> str:
        """The neighbour's name."""
        return self.neighbour.name

    def take(self, state: Mapping[str, Any], now: float) -> None:
        """Takes in what it said: all of it, or nothing and ValueError and the like where that makes no sense."""
        fetching = {str(sha256): int(count) for sha256, count in dict(state["fetching"]).items()}
        hashing = {str(sha256): self.hashing.get(str(sha256), now) for sha256 in state["hashing"]}
        have, claims = frozenset(map(str, state["have"])), frozenset(map(str, state["claims"]))
        hub_bytes = int(state["hub_bytes"])
        for sha256, count in fetching.items():
            if count > self.fetching.get(sha256, -1):
                self.moved[sha256] = now
        if hub_bytes > self.hub_bytes:
            self.hub_bytes, self.hub_moved = hub_bytes, now
        self.have, self.claims, self.hashing, self.fetching = have, claims, hashing, fetching
        self.absent = {sha256: times for sha256, times in list(self.absent.items()) if sha256 in have}
        self.seen, self.problem = now, ""

    def answers(self, now: float, poll_s: float) -> bool:
        """Whether it has been heard of lately."""
        return now - self.seen < 4 * poll_s + 2 * ASK_TIMEOUT_S

    def offers(self, sha256: str, now: float) -> bool:
        """Whether to ask it for a file now."""
        _, again = self.absent.get(sha256, (0, 0.0))
        return sha256 in self.have and now >= max(self.waiting, again) and not self.shunned

    def is_trusted_with(self, sha256: str) -> bool:
        """Whether the hub can be left alone for a file that it offers, though it may be busy now."""
        return sha256 in self.have and sha256 not in self.absent and not self.failures and not self.shunned

    def rest(self, seconds: float) -> None:
        """Leaves it alone for a while."""
        self.waiting = time.monotonic() + seconds

    def lacked(self, sha256: str) -> None:
        """It says that it has a file and has not: it is asked for it more and more rarely, for others as before."""
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


class Neighbours:
    """All of them, asked in the background from `begin` to `end`, each by its own clock: none waits for others."""

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing
        self.views = [View(neighbour) for neighbour in sharing.neighbours]
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

    async def _ask_on(self, view: View, rooms: Mapping[bool, asyncio.Semaphore]) -> None:
        """Asks one again and again. Those who did not answer last time take no room from those who did."""
        answered = True
        while not self._stop.is_set():
            async with rooms[answered]:
                answered = await self._ask(view)
            self._unasked.discard(view.name)
            if not self._unasked:
                self._asked_all.set()
            await asyncio.sleep(self.sharing.poll_s * random.uniform(0.75, 1.25))

    async def _ask(self, view: View) -> bool:
        """Whether it answered; what it said is in the view then, else why not."""
        known = (view.address,) if view.address else view.neighbour.addresses
        for address in known:
            try:
                state = await asyncio.wait_for(ask(address, view.neighbour.port, self.sharing.key), ASK_TIMEOUT_S)
                if state["host"] != view.name:
                    raise OSError("another host answers")  # it has this address too, or it is this one itself
                view.take(state, time.monotonic())
                view.address = address
                return True
            except Exception as error:  # whatever it sends, only it is to suffer
                view.problem = f"{address} port {view.neighbour.port}: {_reason(error)}"
        view.address = ""
        return False


def _reason(error: Exception) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return f"no answer within {ASK_TIMEOUT_S:g} s"
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else str(error) or type(error).__name__


async def ask(address: str, port: int, key: str) -> dict[str, Any]:
    """What a neighbour says of a checkpoint. Raises OSError and the like where it does not answer well."""
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
        raise ValueError("what answers is no web server")
    if status[:3] != b"200":
        raise OSError(f"answers {status[:3].decode(errors='replace')}")
    state: dict[str, Any] = json.loads(body)
    return state


class Offer:
    """What this host offers its neighbours: links to verified files, and its state."""

    def __init__(self, sharing: Sharing) -> None:
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

    def tell(self, **more: Any) -> None:
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
