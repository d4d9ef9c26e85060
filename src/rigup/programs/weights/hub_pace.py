"""The hub's speed and failures as seen by one host, and a sample download if nothing else measures the speed.

Part of fetch_weights.py, for shared downloads.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

if __package__:
    from rigup.programs.weights import curl_transfers as curl
    from rigup.programs.weights.weights_folder import Download, FetchError, File, size_of
else:
    import curl_transfers as curl  # type: ignore[import-not-found, no-redef]
    from weights_folder import Download, FetchError, File, size_of  # type: ignore[import-not-found, no-redef]

SAMPLE = ""
"""The sample's key among the transfers: no file has an empty path."""
SAMPLE_BYTES = 16_000_000
SAMPLE_S = 5.0
SAMPLE_EVERY_S = 60.0
MEASURED_S = 1.0
MEASURED_BYTES = 1_000_000
"""A transfer that is shorter in both measures latency rather than throughput."""
TIMES_SLOWER = 4
"""The hub is preferred to a peer that is this many times slower."""


@dataclass
class HubPace:
    """rate: bytes per second of one transfer, as last measured; 0 if unknown.

    tries: consecutive transfers without data. rests_until: when to try again. error: why it is not tried again.
    """

    rate: float = 0.0
    tries: int = 0
    rests_until: float = 0.0
    error: FetchError | None = None
    sampled: float = float("-inf")
    part: Path | None = None

    def measure(self, count: int, seconds: float) -> None:
        """Records the rate of a transfer: bytes and seconds."""
        if seconds > 0 and (seconds >= MEASURED_S or count >= MEASURED_BYTES):
            self.rate = count / seconds

    def gives(self, count: int, seconds: float) -> bool:
        """Whether the hub delivers this many bytes within this time."""
        return bool(self.rate) and count / self.rate < seconds

    def allows(self, count: int) -> float:
        """Seconds that a peer may take for this many bytes."""
        return TIMES_SLOWER * count / self.rate if self.rate else 0.0

    def sample(self, curls: curl.Transfers, fetch: Download, file: File, part: Path) -> None:
        """Starts a sample download of a file's beginning, unless one ran within SAMPLE_EVERY_S."""
        now = time.monotonic()
        if self.part or self.error or now < self.rests_until or now - self.sampled < SAMPLE_EVERY_S:
            return
        self.sampled, self.part = now, part
        part.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        curls.begin(SAMPLE, fetch.hub_transfer(file, part), min(file.size, SAMPLE_BYTES))

    @property
    def has_lasted(self) -> bool:
        """Whether the sample has run for long enough."""
        return self.part is not None and time.monotonic() - self.sampled > SAMPLE_S

    def end_sample(self) -> int:
        """Records the rate of a sample that has ended, and returns its bytes."""
        count = size_of(self.part) or 0 if self.part else 0
        self.rate = count / max(1e-3, time.monotonic() - self.sampled)
        self.clear()
        return count

    def clear(self) -> None:
        """Deletes the sample."""
        if self.part:
            self.part.unlink(missing_ok=True)
        self.part = None
