"""vLLM's groups, pages and blocks."""

from __future__ import annotations

import pytest

from rigup.attention.attention_class import Storage
from rigup.planner.memory.vllm_caches import BlockPool, TokenPool, vllm_pool
from tests.measured.rows import models
from tests.unit.planner.asking import catalogue


def pool(name: str, tensor: int = 1, states: int = 1) -> BlockPool:
    found = vllm_pool(models()[name], Storage("vllm", "bf16", tensor), 8192, (), states)
    assert isinstance(found, BlockPool)
    return found


@pytest.mark.parametrize(
    ("name", "tensor", "groups", "block"),
    [
        ("gpt-oss-20b", 1, [12, 12], {16}),
        ("gemma-4-31B", 1, [10] * 6, {16, 32}),
        ("Qwen3.5-397B-A17B", 4, [15] * 4, {1056, 0}),
        ("Qwen3.8-27B", 1, [16] * 4, {784, 0}),
        ("Nemotron-3-Nano-30B-A3B", 1, [6, 6, 6, 6, 5], {0, 2096}),
    ],
)
def test_layers_form_groups_of_equally_many(name: str, tensor: int, groups: list[int], block: set[int]) -> None:
    """A block of 784 tokens is what a log of Qwen3.6-27B on one H200 says."""
    found = pool(name, tensor)
    assert sorted((len(group.numbers) for group in found.groups), reverse=True) == groups
    assert {group.block for group in found.groups} == block
    numbers = sorted(number for group in found.groups for number in group.numbers)
    assert len(numbers) == len(set(numbers))


def test_a_cached_prefix_costs_each_request_a_second_state() -> None:
    once, twice = pool("Qwen3.5-397B-A17B", 4), pool("Qwen3.5-397B-A17B", 4, states=2)
    assert (once.request_blocks(8192), twice.request_blocks(8192)) == (8 + 3, 8 + 6)


def test_a_window_costs_what_a_step_may_add() -> None:
    """10.13 requests of 8,192 tokens of gemma-4-31B: the window of 1,024 and a step of 8,192 are all of them."""
    found = pool("gemma-4-31B")
    assert found.request_blocks(8192) == 256 + 5 * (512 + 1)
    assert found.request_blocks(262_144) == 8192 + 5 * ((1024 - 1 + 8192 + 15) // 16 + 1)


def test_every_stage_holds_its_part_of_each_group() -> None:
    found = pool("Qwen3.5-397B-A17B", 4)
    whole = found.needed_bytes(8192, 0, 60)
    halves = found.needed_bytes(8192, 0, 30) + found.needed_bytes(8192, 30, 60)
    assert whole <= halves <= 1.1 * whole


def test_layers_that_keep_every_token_share_blocks_of_16() -> None:
    found = vllm_pool(models()["DeepSeek-V3.2"], Storage("vllm", "bf16", 8), 8192, ())
    assert isinstance(found, TokenPool)
    assert found.tokens(78_324 * 100.5, 0, 61, 8192) == 96
    assert found.needed_bytes(1000, 0, 61) == 78_324_000


def test_pages_of_different_sizes_lie_side_by_side_in_a_block() -> None:
    """DeepSeek V4 Flash as vLLM 0.33.0's own code lays it out: two groups of windows, one of entries, two of states."""
    model = catalogue().models_by_name["DeepSeek-V4-Flash-0731"]
    found = vllm_pool(model, Storage("vllm", "bf16", 4), 2 * 8192, ())
    assert isinstance(found, BlockPool)
    assert found.block_bytes(0, 43) == 1_002_240
    assert sorted(len(group.numbers) for group in found.groups) == [20, 21, 22, 42, 62]
    assert found.request_blocks(1_048_576) == 259 + 259 + 4096 + 4099 + 2065
