"""How long a service may take until it answers."""

from __future__ import annotations

from rigup.plan import Checkpoint

READ_BYTES_PER_SECOND = 250_000_000
WARM_UP_SECONDS = 300


def start_timeout_s(checkpoint: Checkpoint) -> int:
    """Seconds: every byte read at half the pace of a SATA disk, and five minutes to compile and warm up."""
    return WARM_UP_SECONDS + checkpoint.bytes // READ_BYTES_PER_SECOND
