"""A rollback that is broken off by the loss of its host."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.errors import HostLost
from rigup.operations.service import rollback
from rigup.operations.service.history import RetainedRelease
from tests.unit.local_host import LocalHost


def test_a_host_that_is_gone_gets_no_release_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    switched: list[str] = []
    monkeypatch.setattr(rollback, "switch", lambda host, service, number: switched.append(number))

    def gone(host: Any) -> None:
        raise HostLost("box: chat: gone")

    wanted, current = (RetainedRelease("chat", number, 0, number == 2, True, {}) for number in (1, 2))
    with pytest.raises(HostLost, match="gone; whether release 1 answers is unknown"):
        rollback.roll_back(LocalHost(), wanted, current, gone, gone)  # type: ignore[arg-type]
    assert switched == ["1"]
