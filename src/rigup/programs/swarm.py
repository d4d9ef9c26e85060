"""A download in which hosts of a fleet share: each file comes from the hub once, and from neighbours everywhere else.

Nobody is in charge. Each host takes from its neighbours what they have, and from the hub what is its turn by
`swarm_order`; where whoever's turn it is gets on with nothing, the next one takes over. Every host ends with all files
as long as the hub or any neighbours that together have them can be reached. Part of fetch_weights.py.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if __package__:
    from rigup.programs import curl_transfers as curl
    from rigup.programs import swarm_order as order
    from rigup.programs.neighbours import Neighbours, Offer, Sharing, View
    from rigup.programs.weights_folder import EXIT_DISK, EXIT_FAILED, FetchError, File, size_of
else:
    import curl_transfers as curl  # type: ignore[import-not-found, no-redef]
    import swarm_order as order  # type: ignore[import-not-found, no-redef]
    from neighbours import Neighbours, Offer, Sharing, View  # type: ignore[import-not-found, no-redef]
    from weights_folder import (  # type: ignore[import-not-found, no-redef]
        EXIT_DISK,
        EXIT_FAILED,
        FetchError,
        File,
        size_of,
    )

if TYPE_CHECKING:
    from rigup.programs.fetch_weights import Fetch

TICK_S = 0.2
TELL_S = 0.5
LAN_STALL_S = 10
HASHED_PER_S = 50e6
"""Bytes; what a host that takes longer is not waited for."""
HUB = "hub"
EARLIER = "an earlier run"
STRIKES = 2
BUSY = 503


@dataclass
class Active:
    """A transfer that runs. view: the neighbour that it comes from, None for the hub. before: the part's size then."""

    file: File
    view: View | None
    before: int

    @property
    def source(self) -> str:
        """Where it comes from, by name."""
        return self.view.name if self.view else HUB


class Swarm:
    """One host's side of it, for the files of one `Fetch`."""

    def __init__(self, fetch: Fetch, lock: int) -> None:
        job = fetch.job
        assert job.sharing is not None
        self.fetch, self.sharing = fetch, Sharing.read(job.sharing)
        self.neighbours, self.offer = Neighbours(self.sharing), Offer(self.sharing)
        self.curls = curl.SideBySide(lock)
        self.live: list[View] = []
        self.active: dict[str, Active] = {}
        count, mine = len(self.sharing.fetchers), self.sharing.fetchers.index(self.sharing.name)
        owners = order.owners([(file.path, file.size) for file in job.files], self.sharing.fetchers)
        self.ranks = {path: order.rank(owner, mine, count) for path, owner in owners.items()}
        self.places = order.places([file.path for file in job.files], mine, count)
        self.taken: Counter[str] = Counter()
        self.sources: dict[str, set[str]] = {}
        self.avoided: dict[str, set[str]] = {}
        self.strikes: Counter[str] = Counter()
        self.began = self.moved = time.monotonic()
        self.opened: dict[str, float] = {}
        self.grew: dict[str, float] = {}
        self.told = 0.0
        self.hub_rests_until, self.hub_tries = 0.0, 0
        self.hub_is_out: FetchError | None = None
        self.limits = {
            HUB: 1 if job.hub_bytes_per_second else job.parallel,
            "": 1 if job.lan_bytes_per_second else job.parallel,
        }

    def close(self) -> None:
        """Kills what runs, and tells the neighbours no more."""
        self.curls.close()
        self.neighbours.end()
        self.tell(final=True)

    def download(self) -> None:
        """Returns when nothing is pending and everything is verified. Raises FetchError where that cannot be."""
        fetch = self.fetch
        self.sources = {file.path: {EARLIER} for file in fetch.job.files if size_of(fetch.part(file))}
        self.tell(final=True)
        while fetch.pending or fetch.hashing:
            if fetch.pending and self.neighbours.begin():
                self.began = self.moved = time.monotonic()
            self.look()
            self.leave_hub()
            self.begin_from_neighbours()
            self.begin_from_hub()
            for path, transfer in self.curls.ended(TICK_S):
                self.judge(self.active.pop(path), transfer)
            self.guard()
            fetch.settle(wait=False)
            fetch.report()
            self.tell()
            self.give_up_in_the_end()
        self.tell(final=True)

    def look(self) -> None:
        """Notes which neighbours answer."""
        now = time.monotonic()
        self.live = [view for view in self.neighbours.views if view.answers(now, self.sharing.poll_s)]

    def open_files(self) -> list[File]:
        """What is pending and not on its way."""
        return [file for path, file in self.fetch.pending.items() if path not in self.active]

    def givers(self, file: File) -> list[View]:
        """The neighbours that a file can be taken from now."""
        now, avoided = time.monotonic(), self.avoided.get(file.path, set())
        return [view for view in self.live if view.offers(file.sha256, now) and view.name not in avoided]

    def begin_from_neighbours(self) -> None:
        """Takes what neighbours have, what fewest have first, each from whoever is asked for least."""
        loads = Counter(active.source for active in self.active.values() if active.view)
        files = {file.path: file for file in self.open_files()}
        givers = {path: self.givers(file) for path, file in files.items()}
        copies = {path: len(views) for path, views in givers.items()}
        for path in order.rarest_first(files, copies, self.places, len(self.places)):
            if sum(loads.values()) >= self.limits[""]:
                return
            view = min(givers[path], key=lambda view: (loads[view.name], random.random()))
            self.begin(files[path], view)
            loads[view.name] += 1

    def begin_from_hub(self) -> None:
        """Takes what is this host's turn, and what no neighbour has or gets on with."""
        now = time.monotonic()
        if self.hub_is_out or now < self.hub_rests_until:
            return
        running = sum(active.view is None for active in self.active.values())
        held = frozenset().union(*(view.have for view in self.live if not view.shunned))
        pending = self.fetch.pending
        undone = [path for path in self.ranks if path in pending and pending[path].sha256 not in held]
        opened = order.opened(undone, self.fetch.job.parallel)
        self.opened = {path: self.opened.get(path, now) for path in opened}
        for file in sorted(self.open_files(), key=lambda file: (self.turn(file), self.places[file.path])):
            if running >= self.limits[HUB]:
                return
            if (file.path in opened or file.path not in undone) and self.wants_from_hub(file):
                self.begin(file, None)
                running += 1

    def wants_from_hub(self, file: File) -> bool:
        """Whether it is this host that is to ask the hub for a file, now."""
        quiet_s = self.quiet_s(file, self.opened.get(file.path, 0.0))
        if self.offered(file) or not order.may_ask_hub(self.turn(file), quiet_s, self.patience_s):
            return False
        return not self.ahead(file, size_of(self.fetch.part(file)) or 0)

    @property
    def patience_s(self) -> float:
        """How long a file may lie still before the next host's turn comes."""
        return self.sharing.patience_s

    def turn(self, file: File) -> int:
        """How many come first: those with an earlier turn that answer; all others together count as one."""
        count, mine = len(self.sharing.fetchers), self.sharing.fetchers.index(self.sharing.name)
        first = self.ranks[file.path]
        earlier = {self.sharing.fetchers[(mine - step) % count] for step in range(1, first + 1)}
        answering = earlier & {view.name for view in self.live}
        return len(answering) + (1 if earlier - answering else 0)

    def offered(self, file: File) -> bool:
        """Whether a neighbour that can be trusted with it has it, though it may be busy now."""
        avoided = self.avoided.get(file.path, set())
        return any(view.is_trusted_with(file.sha256) and view.name not in avoided for view in self.live)

    def ahead(self, file: File, count: int) -> bool:
        """Whether a neighbour that gets on with this file at the hub is to have it, rather than this host."""
        now, mine = time.monotonic(), (count, self.ranks[file.path])
        fetchers = self.sharing.fetchers
        own = fetchers.index(self.sharing.name)
        others = [
            (view.fetching[file.sha256], (self.ranks[file.path] - own + fetchers.index(view.name)) % len(fetchers))
            for view in self.live
            if file.sha256 in view.fetching
            and view.name in fetchers
            and now - view.moved.get(file.sha256, 0.0) < self.patience_s
        ]
        return order.gives_way(mine, others)

    def quiet_s(self, file: File, since: float = 0.0) -> float:
        """For how long nobody got on with a file, from `since` on at most."""
        now, most = time.monotonic(), self.patience_s + file.size / HASHED_PER_S
        moved = [self.began, since, self.grew.get(file.path, 0.0)]
        for view in self.live:
            moved.append(view.moved.get(file.sha256, 0.0))
            if file.sha256 in view.claims:
                moved.append(view.hub_moved)
            if now - view.hashing.get(file.sha256, 0.0) < most:
                moved.append(now)
        return now - max(moved)

    def begin(self, file: File, view: View | None) -> None:
        """Starts a transfer."""
        fetch, job, part = self.fetch, self.fetch.job, self.fetch.part(file)
        part.parent.mkdir(parents=True, exist_ok=True)
        self.active[file.path] = Active(file, view, size_of(part) or 0)
        if view is None:
            config = fetch.hub_transfer([file])
        else:
            host = f"[{view.address}]" if ":" in view.address else view.address
            wanted = curl.Wanted(f"http://{host}:{view.neighbour.port}/files/{file.sha256}", part, file.size, True)
            config = curl.configuration([wanted], 1, min(job.stall_s, LAN_STALL_S), None, job.lan_bytes_per_second)
        self.curls.begin(file.path, config)

    def leave_hub(self) -> None:
        """Ends transfers from the hub of what a neighbour has by now, or gets from there and is further with."""
        for path, active in list(self.active.items()):
            count = size_of(self.fetch.part(active.file)) or 0
            if count > active.before and active.view is None:
                self.grew[path] = time.monotonic()
            if active.view is None and count < active.file.size:
                trusted = any(view.is_trusted_with(active.file.sha256) for view in self.givers(active.file))
                if trusted or self.ahead(active.file, count):
                    self.stop(path)

    def stop(self, path: str) -> None:
        """Ends a transfer; what came stays. It may have become whole before it could be ended."""
        active = self.active.pop(path)
        self.curls.end(path)
        if self.count(active) == active.file.size:
            self.fetch.verify(active.file, self.fetch.part(active.file))

    def count(self, active: Active) -> int:
        """Notes what a transfer has brought; returns the part's size."""
        size = size_of(self.fetch.part(active.file)) or 0
        if size > active.before:
            self.taken[active.source] += size - active.before
            self.sources.setdefault(active.file.path, set()).add(active.source)
            self.moved = self.grew[active.file.path] = time.monotonic()
        return size

    def judge(self, active: Active, transfer: curl.Transfer) -> None:
        """What a transfer's end means."""
        size = self.count(active)
        if active.view is not None:
            return self.judge_neighbour(active.file, active.view, transfer, size)
        try:
            self.fetch.judge(active.file, transfer)
        except FetchError as error:
            if transfer.code == curl.WRITE_FAILED or error.exit_code == EXIT_DISK:
                raise
            self.hub_is_out = error
            return
        if active.file.path not in self.fetch.pending or size > active.before:
            self.hub_tries = 0
        if active.file.path in self.fetch.pending:
            self.hub_rests_until = time.monotonic() + self.fetch.pause(self.hub_tries)
            self.hub_tries += 1

    def judge_neighbour(self, file: File, view: View, transfer: curl.Transfer, size: int) -> None:
        """What the end of a transfer from a neighbour means for the file, and for the neighbour."""
        part, reason = self.fetch.part(file), transfer.message or f"{size} bytes instead of {file.size}"
        if transfer.code == 0 and size == file.size:
            view.worked()
            self.fetch.verify(file, part)
        elif transfer.code == curl.WRITE_FAILED:
            self.fetch.require_disk()
            raise FetchError(EXIT_FAILED, f"{file.path} from {view.name}: {reason}")
        elif transfer.status == BUSY:
            view.turned_away()
        elif transfer.status == 404:
            view.lacked(file.sha256)
        else:
            self.fetch.problem = f"{file.path} from {view.name}: {reason}"
            view.failed(reason)
            if transfer.code == 0 or transfer.code in curl.START_OVER or transfer.status == 416:
                part.unlink(missing_ok=True)
                self.sources.pop(file.path, None)

    def guard(self) -> None:
        """Ends what a neighbour sends more of than the file has: it would fill the disk."""
        for path, active in list(self.active.items()):
            if active.view and (size_of(self.fetch.part(active.file)) or 0) > active.file.size:
                self.stop(path)
                self.sources.pop(path, None)
                self.fetch.part(active.file).unlink(missing_ok=True)
                self.shun(active.view, f"sent more than {active.file.path} has")

    def blames(self, file: File, found: str) -> bool:
        """Whether a wrong hash may be a neighbour's doing. One that sent all of it is shunned; others are suspected."""
        sources = self.sources.pop(file.path, set())
        views = [view for view in self.neighbours.views if view.name in sources]
        self.avoided.setdefault(file.path, set()).update(view.name for view in views)
        for view in views:
            self.strikes[view.name] += 1
            if len(sources) == 1 or self.strikes[view.name] >= STRIKES:
                self.shun(view, f"sent {file.path} with sha256 {found}, the lock says {file.sha256}")
        return bool(views)

    def shun(self, view: View, why: str) -> None:
        """Takes nothing more from a neighbour."""
        view.shunned = why
        self.say(f"{view.name} is asked for nothing more: it {why}")

    def say(self, words: str) -> None:
        """A line for the journal."""
        print(words, file=sys.stderr, flush=True)

    def give_up_in_the_end(self) -> None:
        """Raises FetchError when the hub is of no use, and no neighbour has or gets on with what is missing."""
        if self.active or self.fetch.hashing or not self.fetch.pending:
            return
        if any(self.offered(file) or self.quiet_s(file) < self.patience_s for file in self.open_files()):
            return
        if time.monotonic() - self.moved < 6 * self.patience_s:
            return
        if self.hub_is_out:
            raise self.hub_is_out
        if self.hub_tries >= self.fetch.job.attempts:
            said = f"gave up after {self.hub_tries} tries without progress: {self.fetch.problem}"
            raise FetchError(EXIT_FAILED, f"{said}; no neighbour has what is missing")

    def hub_bytes(self) -> int:
        """What came from the hub so far."""
        growing = (active for active in self.active.values() if active.view is None)
        return self.taken[HUB] + sum((size_of(self.fetch.part(a.file)) or 0) - a.before for a in growing)

    def shares(self) -> str:
        """Where the bytes came from, in words."""
        growing = (active for active in self.active.values() if active.view)
        lan = sum(count for name, count in self.taken.items() if name != HUB)
        lan += sum((size_of(self.fetch.part(a.file)) or 0) - a.before for a in growing)
        return f"bytes, {_megabytes(self.hub_bytes())} from the hub, {_megabytes(lan)} from neighbours"

    def tell(self, final: bool = False) -> None:
        """Tells the neighbours, and whoever reads the state here."""
        now, fetch = time.monotonic(), self.fetch
        if not final and now - self.told < TELL_S:
            return
        self.told = now
        growing = {a.file.sha256: size_of(fetch.part(a.file)) or 0 for a in self.active.values() if a.view is None}
        claimed = [] if self.hub_is_out or self.hub_tries else [f for f in self.open_files() if not self.ranks[f.path]]
        views = self.neighbours.views
        self.offer.tell(
            fetching=growing,
            hashing=[file.sha256 for file, _ in fetch.hashing.values()],
            claims=[file.sha256 for file in claimed],
            hub_bytes=self.hub_bytes(),
            taken=dict(self.taken),
            shunned={view.name: view.shunned for view in views if view.shunned},
            unreachable={view.name: view.problem for view in views if view.problem and not view.shunned},
        )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
