"""When a changed unit costs a restart."""

from __future__ import annotations

import pytest

from rigup.gateway.files import gateway_unit, needs_restart
from rigup.gateway_settings import Gateway

UNIT = gateway_unit(Gateway())


@pytest.mark.parametrize(
    ("earlier", "restart"),
    [
        (UNIT, False),
        (f"{UNIT}\n\n", False),
        # as rigup wrote it before gateways had a limit
        (UNIT.replace("MemoryMax=75%\n", ""), False),
        (UNIT.replace("LimitNOFILE=17000", "LimitNOFILE=9000"), True),
        ("", True),
    ],
    ids=["the same", "more lines", "no limit of memory", "other limits", "none"],
)
def test_a_limit_of_memory_costs_nothing(earlier: str, restart: bool) -> None:
    assert needs_restart(earlier, UNIT) is restart
