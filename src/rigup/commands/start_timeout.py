"""How long a service may take until it answers."""

from __future__ import annotations

from rigup.plan import Checkpoint
from rigup.service import Service

READ_BYTES_PER_SECOND = 250_000_000
WARM_UP_SECONDS = 300


def start_timeout_s(checkpoint: Checkpoint, service: Service) -> int:
    """Seconds: the service's own, else every byte read at half the pace of a SATA disk, and five minutes to warm up."""
    if service.start_timeout is not None:
        return service.start_timeout
    return WARM_UP_SECONDS + checkpoint.bytes // READ_BYTES_PER_SECOND
