"""llama.cpp's cells and states, as its log prints their sizes."""

from __future__ import annotations

import pytest

from rigup.planner.memory.llama_cpp_caches import layer_cells
from rigup.units import MIB
from tests.measured.rows import candidate, rows


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        ("file-gemma4-12b-g1", 833),
        ("file-gemma4-12b-g7", 608),
        ("file-gemma4-12b-g9", 391),
        ("llamacpp-ollama-16480", 9306),
        ("file-qwen36-27b-5090", 4352 + 598.5),
        ("ik-334-gemma3-a6000", 15_872),
        ("ik-344-glmz1-3090ti", 1952),
    ],
)
def test_the_size_is_that_of_the_log(name: str, mib: float) -> None:
    planned = candidate(next(row for row in rows() if row.name == name))
    assert sum(layer_cells(planned)) / MIB == pytest.approx(mib, abs=0.5)
