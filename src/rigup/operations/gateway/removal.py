"""What an earlier gateway of rigup's consists of on a host."""

from __future__ import annotations

from rigup.gateway.paths import (
    ACME_FOLDER,
    ACME_STATE,
    ACME_TIMER,
    ACME_TIMER_FILE,
    ACME_UNIT_FILE,
    CANDIDATE,
    CONFIGURATION_FILE,
    FOLDER,
    PORTS_UNIT,
    PORTS_UNIT_FILE,
    PREVIOUS,
    SHARED_FILE,
    SHARED_UNIT,
    SHARED_UNIT_FILE,
    SMG_FOLDER,
    SMG_UNIT,
    SMG_UNIT_FILE,
    UNIT,
    UNIT_FILE,
)
from rigup.operations.primitives.removal import InstalledPart

STOP_SECONDS = 180
# What an apply that was killed may leave, too, with keys beside it.
_TRACES = (
    UNIT_FILE,
    SHARED_UNIT_FILE,
    SMG_UNIT_FILE,
    ACME_UNIT_FILE,
    *(f"{folder}/{CONFIGURATION_FILE.rpartition('/')[2]}" for folder in (FOLDER, CANDIDATE, PREVIOUS)),
)
GATEWAY = InstalledPart(
    traces=_TRACES,
    units=(SHARED_UNIT, UNIT, SMG_UNIT, PORTS_UNIT, ACME_TIMER),
    paths=(
        FOLDER,
        CANDIDATE,
        PREVIOUS,
        SMG_FOLDER,
        ACME_FOLDER,
        ACME_STATE,
        SHARED_FILE,
        SHARED_UNIT_FILE,
        SMG_UNIT_FILE,
        PORTS_UNIT_FILE,
        ACME_TIMER_FILE,
        ACME_UNIT_FILE,
        UNIT_FILE,
    ),
    doing="removing the gateway",
    absent="this host is not a gateway",
    stop_seconds=STOP_SECONDS,
)
