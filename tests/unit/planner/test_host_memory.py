"""The speed of host memory is the rig's: an EPYC is not counted as a desktop."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.errors import InputError
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.planner.speed import decode_speed
from rigup.rig import HostMemory
from tests.unit.planner.asking import FILE, catalogue, served

ASKED: dict[str, Any] = {"model": "MiniMax-M2.1", "quant": "Q8_0", "context": 32_768}


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


def test_more_channels_make_offloaded_experts_faster_and_unknown_ones_do_not() -> None:
    unknown, desktop, epyc = (
        decode_speed(served("2x RTX 5090", ASKED, 1024, memory)) for memory in (None, "2x DDR5-5600", "12x DDR5-4800")
    )
    assert 3 < epyc.high / desktop.high < 10
    assert unknown.low < epyc.low and unknown.high < epyc.high


def test_the_range_holds_what_was_measured_on_two_epycs() -> None:
    """ktransformers' MiniMax-M2.1 tutorial: 33.1 tokens/s, 30 % more than llama.cpp with Q8_0 on the same host."""
    speed = decode_speed(served("2x RTX 5090", ASKED, 1024, "24x DDR5-5600"))
    assert speed.low < 33.1 / 1.3 < speed.high


def test_the_rig_says_it() -> None:
    rig = read_rig({"gpus": [], "host_memory_gib": 512, "host_memory": "12x DDR5-4800"}, FILE, catalogue())
    assert rig.text == "no GPU, 512 GiB host memory (12x DDR5-4800)"


def test_weights_that_cross_pcie_gain_nothing_by_faster_memory() -> None:
    asked = {"checkpoint": "MiniMaxAI/MiniMax-M2.5", "engine": "vllm", "tensor_parallel": 2, "context": 32_768}
    gpus = "2x RTX PRO 6000 Blackwell Workstation Edition"
    unknown, fast = (decode_speed(served(gpus, asked, 512, memory)) for memory in (None, "24x DDR5-6400"))
    assert fast.high == unknown.high
