"""How long a service may take until it responds."""

from __future__ import annotations

from rigup.plan import Checkpoint
from rigup.service import Service

READ_BYTES_PER_SECOND = 250_000_000
WARM_UP_SECONDS = 300


def start_timeout_s(checkpoint: Checkpoint, service: Service) -> int:
    """Seconds: the service's own, otherwise the time to read all bytes at half a SATA disk's speed plus 5 minutes."""
    if service.start_timeout is not None:
        return service.start_timeout
    return WARM_UP_SECONDS + checkpoint.bytes // READ_BYTES_PER_SECOND
