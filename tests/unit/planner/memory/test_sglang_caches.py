"""SGLang's pools of tokens, windows and states."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rigup.planner.candidate import Candidate
from rigup.planner.memory.sglang_caches import StatePool, sglang_pool
from rigup.units import GIB
from tests.measured.rows import candidate, rows


def of(name: str, **flags: object) -> Candidate:
    planned = candidate(next(row for row in rows() if row.name == name))
    return replace(planned, service=planned.service.model_copy(update={"flags": flags}))


def test_states_take_their_part_of_what_is_left() -> None:
    pool = sglang_pool(of("file-sglang-q38-27b"))
    assert isinstance(pool, StatePool)
    tokens, state = pool.tokens(19 * GIB, 0, 64, 2048), sum(pool.states)
    left = 9 * GIB % state  # states come whole, and leave the rest to tokens
    assert tokens == pytest.approx((10 * GIB + left) / 65_536, abs=1)
    assert pool.used_bytes(tokens, 19 * GIB, 0, 64, 2048) == pytest.approx(19 * GIB, rel=1e-4)


def test_without_the_radix_cache_there_are_as_many_states_as_requests() -> None:
    """37.5 GiB are left of 111.7 at 0.8: 32 states and 535,124 tokens by the log."""
    pool = sglang_pool(of("file-sglang-q38-27b", **{"--disable-radix-cache": True}))
    assert pool.tokens((111.7 * 0.8 - 51.86) * GIB, 0, 64, 2048) == pytest.approx(535_124, rel=0.01)


@pytest.mark.parametrize(
    ("ratio", "each"), [(None, 9 * 640 + 39 * 1280 * 0.8), (1.0, 55_680), ("x", 9 * 640 + 39 * 1024)]
)
def test_windows_keep_a_part_of_the_tokens(ratio: object, each: float) -> None:
    flags = {} if ratio is None else {"--swa-full-tokens-ratio": ratio}
    pool = sglang_pool(of("sglang-15464", **flags))
    assert pool.needed_bytes(1000, 0, 48) == pytest.approx(1000 * each)


def test_a_request_needs_three_states() -> None:
    pool = sglang_pool(of("file-sglang-q38-27b"))
    least = pool.needed_bytes(16, 0, 64)
    assert pool.tokens(least * 1.001, 0, 64, 16) >= 16
    assert pool.tokens(least * 0.999, 0, 64, 16) == 0
