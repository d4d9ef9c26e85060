"""What slows the estimate of the speed: weights in host memory, and the slowest card of those that read together."""

from __future__ import annotations

from rigup.planner.candidate import Candidate
from rigup.planner.memory.weights import active_bytes
from rigup.planner.speed import decode_speed
from tests.unit.planner.asking import FP8, PRO_6000, decided, served

# The high end of docs/memory.md's table: bytes a second from host memory.
HOST_BYTES_PER_S = 60e9


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
