"""How long a host's services may take to stop is read from their units, and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.operations.primitives import units
from rigup.service import Service
from rigup.systemd.draining import END_SECONDS
from tests.unit.local_host import LocalHost


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        pytest.param("", 0, id="no unit"),
        pytest.param("TimeoutStopSec=60\nTimeoutStopSec=180\n", 360, id="the longest of several, for both its phases"),
        pytest.param("TimeoutStopSec=infinity\nTimeoutStopSec=\nTimeoutStopSec=-1\n", 0, id="nothing that rigup wrote"),
        pytest.param("TimeoutStopSec=99999\n", 2 * units.LONGEST_STOP, id="longer than any service"),
    ],
)
def test_the_time_that_services_may_take_to_stop(said: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "_LIMITS", f"printf %s '{said}'")
    host: Any = LocalHost()
    assert units.stop_seconds(host) == seconds
    assert units.stop_limit(host) == seconds + units.STOP_SECONDS


def test_no_service_may_take_longer_than_is_waited_for() -> None:
    bounds = Service.model_fields["drain_timeout"].metadata
    longest = max(bound.le for bound in bounds if hasattr(bound, "le"))
    assert longest + END_SECONDS == units.LONGEST_STOP
