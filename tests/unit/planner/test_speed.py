"""What slows the estimate of the speed: weights in host memory, and the slowest card of those that read together."""

from __future__ import annotations

from rigup.planner.candidate import Candidate
from rigup.planner.memory.weights import active_bytes
from rigup.planner.speed import decode_speed
from tests.unit.planner.asking import FP8, NVFP4, PRO_6000, decided, served

# The high end of docs/speed.md's table: bytes a second from host memory.
HOST_BYTES_PER_S = 60e9
Q8_0 = {"model": "MiniMax-M2.1", "quant": "Q8_0", "context": 32_768}


def middle(candidate: Candidate) -> float:
    """The middle of the range, tokens a second."""
    speed = decode_speed(candidate)
    return (speed.low * speed.high) ** 0.5


def test_weights_that_vllm_offloads_are_read_at_the_hosts_pace() -> None:
    asked = {"checkpoint": FP8, "engine": "vllm", "tensor_parallel": 2}
    offloaded = served(f"2x {PRO_6000}", asked, 512)
    assert offloaded.cpu_offload_gib > 20
    away = offloaded.cpu_offload_gib * 2 * 2**30 / offloaded.checkpoint.bytes
    at_best = HOST_BYTES_PER_S / (active_bytes(offloaded.checkpoint, offloaded.model) * away)
    speed = decode_speed(offloaded)
    assert 0.5 * at_best < speed.high < at_best
    assert speed.high < decode_speed(served("2x H200", asked, 512)).low


def test_what_lacks_gpu_memory_is_never_faster_than_more_of_the_same_cards() -> None:
    asked = {"checkpoint": FP8, "engine": "vllm"}
    two, four = served(f"2x {PRO_6000}", asked, 512), served(f"4x {PRO_6000}", asked, 512)
    assert two.cpu_offload_gib and not four.cpu_offload_gib
    assert decode_speed(two).low < decode_speed(four).low


def test_the_order_of_the_cards_does_not_matter_to_tensor_parallelism() -> None:
    """Two and two cards of different bandwidths wait for the slower ones, whichever come first."""
    asked = {"model": "MiniMax-M2.5", "engine": "vllm", "tensor_parallel": 4}
    fast, slow = [PRO_6000] * 2, ["L40S"] * 2
    one, other = decided(fast + slow, asked), decided(slow + fast, asked)
    assert one.decode_tokens_per_second == other.decode_tokens_per_second is not None


def test_replicas_go_at_the_pace_of_the_slowest() -> None:
    asked = {"model": "MiniMax-M2.5", "engine": "vllm", "tensor_parallel": 2, "data_parallel": 2, "concurrency": 2}
    mixed = served(["H200", "H200", PRO_6000, PRO_6000], asked)
    assert middle(mixed) == middle(served(f"4x {PRO_6000}", {**asked, "context": mixed.context}))


def test_more_channels_make_offloaded_experts_faster_and_unknown_ones_do_not() -> None:
    unknown, desktop, epyc = (
        decode_speed(served("2x RTX 5090", Q8_0, 1024, memory)) for memory in (None, "2x DDR5-5600", "12x DDR5-4800")
    )
    assert 3 < epyc.high / desktop.high < 10
    assert unknown.low < epyc.low and unknown.high < epyc.high


def test_the_range_holds_what_was_measured_on_two_epycs() -> None:
    """ktransformers' MiniMax-M2.1 tutorial: 33.1 tokens/s, 30 % more than llama.cpp with Q8_0 on the same host."""
    speed = decode_speed(served("2x RTX 5090", Q8_0, 1024, "24x DDR5-5600"))
    assert speed.low < 33.1 / 1.3 < speed.high


def test_weights_that_cross_pcie_gain_nothing_by_faster_memory() -> None:
    asked = {"checkpoint": "MiniMaxAI/MiniMax-M2.5", "engine": "vllm", "tensor_parallel": 2, "context": 32_768}
    gpus = "2x RTX PRO 6000 Blackwell Workstation Edition"
    unknown, fast = (decode_speed(served(gpus, asked, 512, memory)) for memory in (None, "24x DDR5-6400"))
    assert fast.high == unknown.high


def test_a_kernel_that_is_known_to_be_missing_lowers_the_low_end_and_is_said() -> None:
    """8x B200 with SGLang: 2,737 tokens/s of 100 requests are published; the least that was estimated was 4,061."""
    asked = {"checkpoint": FP8, "engine": "sglang", "tensor_parallel": 8, "expert_parallel": True, "context": 2048}
    missing = decode_speed(served("8x B200", {**asked, "concurrency": 100}), 100)
    assert missing.low < 2737 < missing.high
    assert missing.note == "no tuned expert kernel for this card and shape"
    plan = decided("8x B200", {**asked, "concurrency": 100})
    assert plan.decode_tokens_per_second is not None and plan.decode_tokens_per_second.note == missing.note
    nvfp4 = {"checkpoint": NVFP4, "engine": "vllm", "context": 2048}
    assert decode_speed(served("2x B200", nvfp4)).note == ""
