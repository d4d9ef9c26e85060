"""A download shared by the hosts of a fleet: one host gets each file from the hub, all others get it from peers.

No host coordinates. Each host downloads from its peers what they have, and from the hub the files whose turn it has by
`swarm_turns`; if the peer whose turn it is makes no progress, the next one takes over. Every host gets all files as
long as it can reach the hub, or peers that together have all of them. A faulty peer delays a download by a bounded
time only, as rigup compares it with the hub. Part of fetch_weights.py.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

if __package__:
    from rigup.programs.weights import curl_transfers as curl
    from rigup.programs.weights import weights_folder as weights
    from rigup.programs.weights.hub_pace import SAMPLE, TIMES_SLOWER, HubPace
    from rigup.programs.weights.peers import Offer, Peers, PeerSharing, PeerView
    from rigup.programs.weights.swarm_turns import SwarmTurns, rarest_first
    from rigup.programs.weights.weights_folder import Download, FetchError, File, log
else:
    import curl_transfers as curl  # type: ignore[import-not-found, no-redef]
    import weights_folder as weights  # type: ignore[import-not-found, no-redef]
    from hub_pace import SAMPLE, TIMES_SLOWER, HubPace  # type: ignore[import-not-found, no-redef]
    from peers import Offer, Peers, PeerSharing, PeerView  # type: ignore[import-not-found, no-redef]
    from swarm_turns import SwarmTurns, rarest_first  # type: ignore[import-not-found, no-redef]
    from weights_folder import Download, FetchError, File, log  # type: ignore[no-redef]

TICK_S = 0.2
PUBLISH_S = 0.5
LAN_STALL_S = 10
HUB = "hub"
EARLIER = "an earlier run"
OFFENCES = 2
BUSY = 503


@dataclass
class ActiveTransfer:
    """A running transfer. view: the peer that it comes from, None for the hub. before: the part's size at the start.

    mark: the time and the part's size when its speed was last measured.
    """

    file: File
    view: PeerView | None
    before: int
    mark: tuple[float, int] = (0.0, 0)

    @property
    def source(self) -> str:
        """The name of the source."""
        return self.view.name if self.view else HUB


class PeerDownload:
    """One host's side of a shared download, for the files of one `Download`."""

    def __init__(self, fetch: Download, lock: int) -> None:
        job = fetch.job
        self.fetch, self.sharing = fetch, PeerSharing.of(job)
        self.peers = Peers(self.sharing, {file.sha256: file.size for file in job.files})
        self.turns = SwarmTurns(self.sharing, job.files)
        self.offer, self.hub = Offer(self.sharing), HubPace()
        self.curls = curl.Transfers(lock)
        self.active: dict[str, ActiveTransfer] = {}
        self.taken: Counter[str] = Counter()
        self.moved = time.monotonic()
        self.state_written, self.begun = 0.0, 0
        self.lan_transfers = 1 if job.lan_bytes_per_second else job.parallel

    def close(self) -> None:
        """Kills running transfers, and stops updating peers."""
        self.curls.close()
        self.hub.clear()
        self.peers.end()
        self.publish(final=True)

    def download(self) -> None:
        """Returns when every file is verified. Raises FetchError if that is impossible."""
        fetch = self.fetch
        for file in fetch.job.files:
            self.turns.files[file.path].sources = {EARLIER} if fetch.part_bytes(file) else set()
        self.publish(final=True)
        while fetch.pending or fetch.hashing:
            if fetch.pending and self.peers.begin():
                self.turns.began = self.moved = time.monotonic()
            self.note_peers()
            self.leave_hub()
            self.compare_with_hub()
            self.begin_from_peers()
            self.begin_from_hub()
            for path, transfer in self.curls.ended(TICK_S):
                if path in self.active:
                    self.judge(self.active.pop(path), transfer)
                else:
                    self.end_sample()
            fetch.take_hashes(wait=False)
            fetch.doing = self.waits_for()
            fetch.report()
            self.publish()
            self.give_up_in_the_end()
        self.publish(final=True)

    def note_peers(self) -> None:
        """Updates which peers answer."""
        now = time.monotonic()
        self.turns.live = [
            view for view in self.peers.views if view.answers(now, self.sharing.poll_s) and not view.banned
        ]

    def open_files(self) -> list[File]:
        """The pending files without a transfer."""
        return [file for path, file in self.fetch.pending.items() if path not in self.active]

    @property
    def hub_is_useless(self) -> bool:
        """Whether the hub delivers nothing: then slow peers are better."""
        return bool(self.hub.error or self.hub.tries)

    def begin_from_peers(self) -> None:
        """Starts transfers from peers: the rarest files first, each from the peer with the fewest transfers."""
        loads = Counter(active.source for active in self.active.values() if active.view)
        files = {file.path: file for file in self.open_files()}
        sources = {path: self.turns.sources_of(file, self.hub_is_useless) for path, file in files.items()}
        copies = {path: len(views) for path, views in sources.items()}
        places = {path: self.turns.files[path].place for path in files}
        for path in rarest_first(files, copies, places, len(self.turns.files)):
            if sum(loads.values()) >= self.lan_transfers:
                return
            view = min(sources[path], key=lambda view: (loads[view.name], random.random()))
            self.begin(files[path], view)
            loads[view.name] += 1

    def begin_from_hub(self) -> None:
        """Starts transfers from the hub for files whose turn this host has and that no peer can deliver."""
        now = time.monotonic()
        if self.hub.error or now < self.hub.rests_until:
            return
        running = sum(active.view is None for active in self.active.values())
        held = frozenset().union(*(view.have for view in self.turns.live if not view.slow))
        pending = self.fetch.pending
        undone = [path for path in self.turns.files if path in pending and pending[path].sha256 not in held]
        # The hosts together ask for as many files at a time as one host would, and pass on those that are complete.
        allowed = set(undone[: self.fetch.job.parallel])
        for path, entry in self.turns.files.items():
            entry.opened = (entry.opened or now) if path in allowed else 0.0
        for file in sorted(
            self.open_files(), key=lambda file: (self.turns.turn(file), self.turns.files[file.path].place)
        ):
            if running >= self.fetch.job.hub_transfers:
                return
            may_come = file.path in allowed or file.path not in undone
            if may_come and self.turns.is_next(file, self.fetch.part_bytes(file)):
                self.begin(file, None)
                running += 1

    def begin(self, file: File, view: PeerView | None) -> None:
        """Starts a transfer; view: the peer, None for the hub."""
        fetch, job, part = self.fetch, self.fetch.job, self.fetch.part(file)
        part.parent.mkdir(parents=True, exist_ok=True)
        size = fetch.part_bytes(file)
        self.begun += 1
        self.active[file.path] = ActiveTransfer(file, view, size, (time.monotonic(), size))
        if view is None:
            config = fetch.hub_transfer(file)
        else:
            host = f"[{view.address}]" if ":" in view.address else view.address
            url = f"http://{host}:{view.peer.port}/files/{file.sha256}"
            stall_s = min(job.stall_s, LAN_STALL_S)
            config = curl.configuration(url, part, file.size, stall_s, None, job.lan_bytes_per_second, peer=True)
        self.curls.begin(file.path, config, file.size)

    def leave_hub(self) -> None:
        """Stops hub transfers of files that a peer has, or that a peer gets from the hub and is further with.

        A transfer that will soon be complete continues in any case.
        """
        for path, active in list(self.active.items()):
            if active.view is not None:
                continue
            count = self.fetch.part_bytes(active.file)
            if count > active.before:
                self.turns.files[path].grew = time.monotonic()
            self.hub.measure(count - active.before, time.monotonic() - active.mark[0])
            if count < active.file.size and not self.hub.gives(active.file.size - count, self.sharing.patience_s):
                trusted = any(
                    view.is_trusted_with(active.file.sha256)
                    for view in self.turns.sources_of(active.file, self.hub_is_useless)
                )
                if trusted or self.turns.ahead(active.file, count):
                    self.stop(path)

    def compare_with_hub(self) -> None:
        """Switches from peers to the hub if they are, or claim to be, far slower; samples the hub's speed if needed.

        Each such peer is reported. If the hub is unusable, no peer is too slow.
        """
        now, patience_s = time.monotonic(), self.sharing.patience_s
        unmeasured: File | None = None
        for path, active in list(self.active.items()):
            if active.view and now - active.mark[0] > patience_s:
                (began, before), count = active.mark, self.fetch.part_bytes(active.file)
                active.mark, rate = (now, count), (count - before) / (now - began)
                most = min(self.hub.rate, self.fetch.job.lan_bytes_per_second or self.hub.rate)
                unmeasured = active.file if not self.hub.rate else unmeasured
                if rate * TIMES_SLOWER < most and not self.hub_is_useless:
                    active.view.slow = f"gives {_rate(rate)}, the hub {_rate(self.hub.rate)}"
                    log(f"switching from {active.view.name} to the hub: it {active.view.slow}")
                    self.stop(path)
        for file in self.open_files():
            opened = self.turns.files[file.path].opened
            if not opened or self.turns.offered(file):
                continue
            for view in (view for view in self.turns.live if not view.unheeded):
                waited = view.waited(file.sha256, now, opened)
                if waited > patience_s / 2 and not self.hub.rate:
                    unmeasured = file
                elif view.keeps_waiting(file.sha256, file.size, now, opened, patience_s, self.hub):
                    view.unheeded = (
                        f"says for {waited:.0f} s that it gets {file.path}, the hub gives {_rate(self.hub.rate)}"
                    )
                    log(f"no longer waiting for {view.name}: it {view.unheeded}")
        if unmeasured and not any(active.view is None for active in self.active.values()):
            self.hub.sample(self.curls, self.fetch, unmeasured, Path(f"{self.fetch.job.folder}.incoming/sample"))
        if self.hub.has_lasted:
            self.curls.end(SAMPLE)
            self.end_sample()

    def end_sample(self) -> None:
        """Records a sample of the hub, whose bytes count as taken from the hub."""
        if count := self.hub.end_sample():
            self.taken[HUB] += count

    def stop(self, path: str) -> None:
        """Stops a transfer and keeps its part. The part may have become complete meanwhile."""
        active = self.active.pop(path)
        self.curls.end(path)
        if self.count(active) == active.file.size:
            self.fetch.verify(active.file, self.fetch.part(active.file))

    def count(self, active: ActiveTransfer) -> int:
        """Records how much a transfer has delivered; returns the part's size."""
        size = self.fetch.part_bytes(active.file)
        if size > active.before:
            self.taken[active.source] += size - active.before
            entry = self.turns.files[active.file.path]
            entry.sources.add(active.source)
            self.moved = entry.grew = time.monotonic()
            if active.view is None:
                self.hub.measure(size - active.before, self.moved - active.mark[0])
        return size

    def judge(self, active: ActiveTransfer, transfer: curl.Transfer) -> None:
        """Acts on the end of a transfer."""
        size = self.count(active)
        if active.view is not None:
            return self.judge_peer(active.file, active.view, transfer, size)
        try:
            self.fetch.judge(active.file, transfer)
        except FetchError as error:
            if transfer.code == curl.WRITE_FAILED or error.exit_code == weights.EXIT_DISK:
                raise
            self.hub.error = error
            return
        if active.file.path not in self.fetch.pending or size > active.before:
            self.hub.tries = 0
        if active.file.path in self.fetch.pending:
            self.hub.rests_until = time.monotonic() + self.fetch.pause(self.hub.tries)
            self.hub.tries += 1

    def judge_peer(self, file: File, view: PeerView, transfer: curl.Transfer, size: int) -> None:
        """Acts on the end of a transfer from a peer, for the file and for the peer."""
        part, reason = self.fetch.part(file), transfer.message or f"{size} bytes instead of {file.size}"
        if transfer.code == 0 and size == file.size:
            view.worked()
            self.fetch.verify(file, part)
        elif transfer.code == curl.WRITE_FAILED:
            self.fetch.require_disk()
            raise FetchError(weights.EXIT_FAILED, f"{file.path} from {view.name}: {reason}")
        elif transfer.status == BUSY:
            view.turned_away()
        elif transfer.status == 404:
            view.lacked(file.sha256)
        else:
            self.fetch.problem = f"{file.path} from {view.name}: {reason}"
            view.failed(reason)
            if transfer.code == curl.TOO_LARGE:
                view.ban(f"sent more than {file.path} has")
            if transfer.code in (0, curl.TOO_LARGE, *curl.START_OVER) or transfer.status == 416:
                part.unlink(missing_ok=True)
                self.turns.files[file.path].sources.clear()

    def attribute_corruption(self, file: File, found: str) -> bool:
        """Whether a peer may have caused a wrong hash. The only source of a file is banned; several are suspected."""
        entry = self.turns.files[file.path]
        sources, entry.sources = entry.sources, set()
        views = [view for view in self.peers.views if view.name in sources]
        entry.avoided |= {view.name for view in views}
        for view in views:
            view.offences += 1
            if len(sources) == 1 or view.offences >= OFFENCES:
                view.ban(f"sent {file.path} with sha256 {found}, not the locked {file.sha256}")
        return bool(views)

    def waits_for(self) -> str:
        """The text shown while no data arrives; it changes as long as there is any progress."""
        if self.active or not self.fetch.pending:
            return ""
        if (left := self.hub.rests_until - time.monotonic()) > 0:
            return f"retrying the hub in {left:.0f} s: {self.fetch.problem}"
        claimed = sum(
            max((view.most.get(file.sha256, 0) for view in self.turns.live), default=0) for file in self.open_files()
        )
        return f"waiting for peers, which have {_megabytes(claimed)} of what is missing, after {self.begun} requests"

    def give_up_in_the_end(self) -> None:
        """Raises FetchError when the hub is unusable, and no peer has the missing files or makes progress with them."""
        if self.active or self.fetch.hashing or not self.fetch.pending:
            return
        if any(
            self.turns.offered(file) or self.turns.quiet_s(file) < self.sharing.patience_s for file in self.open_files()
        ):
            return
        if time.monotonic() - self.moved < 6 * self.sharing.patience_s:
            return
        if self.hub.error:
            raise self.hub.error
        if self.hub.tries >= self.fetch.job.attempts:
            problem = f"gave up after {self.hub.tries} tries without progress: {self.fetch.problem}"
            raise FetchError(weights.EXIT_FAILED, f"{problem}; no peer has the missing parts")

    def totals(self) -> Counter[str]:
        """The bytes received so far by source, including those of running transfers."""
        totals = Counter(self.taken)
        for active in self.active.values():
            totals[active.source] += self.fetch.part_bytes(active.file) - active.before
        return totals

    def shares(self) -> str:
        """A text that says how many bytes came from the hub and from peers."""
        totals = self.totals()
        lan = totals.total() - totals[HUB]
        return f"bytes, {_megabytes(totals[HUB])} from the hub, {_megabytes(lan)} from peers"

    def publish(self, final: bool = False) -> None:
        """Writes the state, for the peers and for rigup."""
        now, fetch = time.monotonic(), self.fetch
        if not final and now - self.state_written < PUBLISH_S:
            return
        self.state_written = now
        growing = {a.file.sha256: fetch.part_bytes(a.file) for a in self.active.values() if a.view is None}
        owned = [file for file in self.open_files() if self.turns.rank(file, self.sharing.name) == 0]
        views = self.peers.views
        self.offer.publish(
            fetching=growing,
            hashing=[file.sha256 for file, _ in fetch.hashing.values()],
            claims=[] if self.hub_is_useless else [file.sha256 for file in owned],
            hub_bytes=self.totals()[HUB],
            taken=dict(self.taken),
            banned={view.name: view.banned for view in views if view.banned},
            slow={view.name: view.slow or view.unheeded for view in views if view.slow or view.unheeded},
            unreachable={view.name: view.problem for view in views if view.problem and not view.banned},
        )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e3:.0f} kB/s" if bytes_per_s < 1e6 else f"{bytes_per_s / 1e6:.1f} MB/s"
