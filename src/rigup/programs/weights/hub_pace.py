"""What the hub gives one host: how fast, how often in vain, and a sample of it where nothing else tells.

Part of fetch_weights.py, for downloads that hosts share. Python 3.10 standard library only.
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
"""Its key among the transfers: no file has an empty path."""
SAMPLE_BYTES = 16_000_000
SAMPLE_S = 5.0
SAMPLE_EVERY_S = 60.0
MEASURED_S = 1.0
MEASURED_BYTES = 1_000_000
"""A transfer that is shorter in both tells the latency rather than the rate."""
TIMES_SLOWER = 4
"""So many times slower than the hub may a peer be before the hub is preferred."""


@dataclass
class HubPace:
    """rate: bytes a second of one transfer, as last measured; 0 where nothing is known.

    tries: transfers in a row that brought nothing. rests_until: when it may be asked again. error: why it never will.
    """

    rate: float = 0.0
    tries: int = 0
    rests_until: float = 0.0
    error: FetchError | None = None
    sampled: float = float("-inf")
    part: Path | None = None

    def measure(self, count: int, seconds: float) -> None:
        """Notes what a transfer brought."""
        if seconds > 0 and (seconds >= MEASURED_S or count >= MEASURED_BYTES):
            self.rate = count / seconds

    def gives(self, count: int, seconds: float) -> bool:
        """Whether it will give so many bytes in that time."""
        return bool(self.rate) and count / self.rate < seconds

    def allows(self, count: int) -> float:
        """Seconds that a peer may take for so many bytes."""
        return TIMES_SLOWER * count / self.rate if self.rate else 0.0

    def sample(self, curls: curl.Transfers, fetch: Download, file: File, part: Path) -> None:
        """Begins to fetch the beginning of a file, beside the download, unless that was tried a short while ago."""
        now = time.monotonic()
        if self.part or self.error or now < self.rests_until or now - self.sampled < SAMPLE_EVERY_S:
            return
        self.sampled, self.part = now, part
        part.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        curls.begin(SAMPLE, fetch.hub_transfer(file, part), min(file.size, SAMPLE_BYTES))

    @property
    def has_lasted(self) -> bool:
        """Whether a sample has gone on for long enough."""
        return self.part is not None and time.monotonic() - self.sampled > SAMPLE_S

    def end_sample(self) -> int:
        """Notes what a sample that has ended brought, and returns its bytes."""
        count = size_of(self.part) or 0 if self.part else 0
        self.rate = count / max(1e-3, time.monotonic() - self.sampled)
        self.clear()
        return count

    def clear(self) -> None:
        """Removes a sample."""
        if self.part:
            self.part.unlink(missing_ok=True)
        self.part = None
