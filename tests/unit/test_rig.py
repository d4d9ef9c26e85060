"""What a rig says: the speed of its host memory, as text and in GB/s."""

from __future__ import annotations

import pytest

from rigup.errors import InputError
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.rig import HostMemory
from tests.unit.planner.asking import FILE, catalogue


@pytest.mark.parametrize(
    ("text", "bandwidth"),
    [("8x DDR5-4800", 307.2), ("2x DDR4-3200", 51.2), ("12 x ddr5-4800", 460.8), ("8x LPDDR5X-8533", 546.112)],
)
def test_channels_and_speed_make_the_bandwidth(text: str, bandwidth: float) -> None:
    memory = HostMemory.read(text)
    assert memory is not None and memory.bandwidth_gbs == pytest.approx(bandwidth)
    assert HostMemory.read(memory.text) == memory


@pytest.mark.parametrize("text", ["", "DDR5-4800", "0x DDR5-4800", "8x DDR5", "8x DDR9-4800", "8x DDR5-1", "300 GB/s"])
def test_another_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError) as error:
        read_rig({"gpus": [], "host_memory": text}, FILE, catalogue())
    assert str(error.value).startswith(f'{FILE}: rig.host_memory: "{text}" does not say channels, kind and speed')
    assert "8x DDR5-4800" in error.value.hint


def test_the_rig_says_it() -> None:
    rig = read_rig({"gpus": [], "host_memory_gib": 512, "host_memory": "12x DDR5-4800"}, FILE, catalogue())
    assert rig.text == "no GPU, 512 GiB host memory (12x DDR5-4800)"
