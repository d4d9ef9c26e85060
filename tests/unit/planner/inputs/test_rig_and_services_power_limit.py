"""`rig.power_limit_w` as written; the bounds are the boards' own and are known on the host only."""

from __future__ import annotations

import pytest

from rigup.errors import InputError
from rigup.planner.inputs.rig_and_services import read_rig
from tests.unit.planner.asking import FILE, catalogue
from tests.unit.planner.inputs.texts import WHOLE


def test_watts_for_each_card() -> None:
    assert read_rig({"gpus": "4x RTX 3090", "power_limit_w": 280}, FILE, catalogue()).power_limit_w == 280
    assert read_rig({"gpus": "4x RTX 3090"}, FILE, catalogue()).power_limit_w is None


@pytest.mark.parametrize(
    ("rig", "words"),
    [
        ({"gpus": [], "power_limit_w": 280}, "this rig has no GPU to limit"),
        ({"gpus": "GB10", "power_limit_w": 100}, "GB10 does not have a configurable power limit"),
        ({"gpus": "RTX 3090", "power_limit_w": "280"}, f'{WHOLE}, not "280"'),
        ({"gpus": "RTX 3090", "power_limit_w": 0}, "must be at least 1, not 0"),
    ],
)
def test_what_cannot_be_meant(rig: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_rig(rig, FILE, catalogue())
    assert caught.value.message == f"{FILE}: rig.power_limit_w: {words}"
