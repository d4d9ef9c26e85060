"""Host memory: the system keeps a part; llama-server's prompt cache is counted, and made smaller where it must be."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.commands.llama_cpp import options
from rigup.planner.memory.host import host_gib_for, system_mib
from tests.unit.planner.asking import AWQ, decided, decision, refused, served

Q4_K_M = {"model": "MiniMax-M2.5", "quant": "Q4_K_M", "context": 4096}
SMALL = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}


def cache_ram(gpus: object, service: dict[str, Any], host_memory_gib: float | None = None) -> object:
    """What --cache-ram is given, None where it is left to the service's own flags."""
    found = decision(gpus, service, host_memory_gib)
    return options(found.candidate, found.checkpoint).get("--cache-ram")


@pytest.mark.parametrize(("total", "kept"), [(4096, 512), (65_536, 3276), (196_608, 9830)])
def test_the_system_keeps_a_twentieth_and_512_mib_at_least(total: int, kept: int) -> None:
    assert system_mib(total) == kept


@pytest.mark.parametrize("needed", [1, 3000, 98_000, 400_000])
def test_the_memory_that_is_told_to_buy_is_enough_and_no_more(needed: int) -> None:
    gib = host_gib_for(needed)
    assert gib * 1024 - system_mib(gib * 1024) >= needed
    assert (gib - 1) * 1024 - system_mib(max(0, gib - 1) * 1024) < needed


@pytest.mark.parametrize("gib", [80.0, 88.3, 90.0, 94.5, 96.0, 100.0, 110.0, 192.0])
def test_experts_on_the_host_leave_the_system_its_part(gib: float) -> None:
    """88.3 GiB were once used but for 32 MiB, and the prompt cache came on top."""
    total = int(gib * 1024)
    if decided("2x RTX 3090", Q4_K_M, gib).verdict == "refused":
        assert gib < 96
        return
    candidate = served("2x RTX 3090", Q4_K_M, gib)
    assert candidate.host_memory_mib <= total - system_mib(total)
    assert candidate.prompt_cache_mib is not None


def test_a_prompt_cache_is_what_is_left_where_that_is_less_than_the_default() -> None:
    roomy, close = served("2x RTX 3090", Q4_K_M, 192), served("2x RTX 3090", Q4_K_M, 98)
    assert roomy.prompt_cache_mib == 8192 and close.prompt_cache_mib is not None
    assert 0 < close.prompt_cache_mib < 8192
    assert close.host_memory_mib == 98 * 1024 - system_mib(98 * 1024)
    assert cache_ram("2x RTX 3090", Q4_K_M, 98) == close.prompt_cache_mib


def test_a_machine_that_says_nothing_of_its_memory_has_a_small_one() -> None:
    assert cache_ram([], SMALL) == 512
    assert cache_ram([], SMALL, 16) == 2048
    assert cache_ram("4x RTX 3090", {**SMALL, "gpus": [0]}) == 8192


@pytest.mark.parametrize(("flags", "counted"), [({"--cache-ram": 300}, 300), ({"-cram": 0}, 0), ({"-cram": -1}, 8192)])
def test_what_the_service_says_is_taken_and_counted(flags: dict[str, int], counted: int) -> None:
    found = served([], {**SMALL, "flags": flags}, 16)
    assert found.prompt_cache_mib == counted
    without = served([], {**SMALL, "flags": {"--cache-ram": 0}}, 16)
    assert found.host_memory_mib - without.host_memory_mib == counted
    assert cache_ram([], {**SMALL, "flags": flags}, 16) is None


def test_a_prompt_cache_that_the_host_cannot_hold_is_refused() -> None:
    (finding,) = refused([], {**SMALL, "flags": {"--cache-ram": 16_384}}, 16).refusals
    assert finding.rule == "host-memory"
    assert finding.message.endswith(
        "MiB of host memory, but the rig has 16 GiB, of which 819 MiB are reserved for the system"
    )


def test_other_engines_have_no_such_cache() -> None:
    assert served("8x RTX 3090", {"checkpoint": AWQ, "engine": "vllm"}, 64).prompt_cache_mib is None
