"""llama.cpp's cells and states, as its log prints their sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.attention.attention_class import Storage
from rigup.checkpoints.describe import describe
from rigup.checkpoints.repository import local_repository
from rigup.planner.memory.llama_cpp_caches import cells, layer_cells
from rigup.units import MIB
from tests.measured.rows import candidate, rows
from tests.tiny.checkpoint import write_gguf


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


# What b11434's log says of the models of tests/tiny in two slots: bytes of every buffer together.
@pytest.mark.parametrize(
    ("kind", "cache", "context", "mib"),
    [
        ("full", "f16", 2048, 4.0),
        ("full", "f16", 2000, 4.0),
        ("sliding_window", "f16", 2048, 2.0 + 3.75),
        ("chunked_local", "f16", 20_480, 10.0 + 12.75),
        ("latent", "f16", 2048, 18.0),
        ("latent_indexed", "f16", 2048, 18.0 + 2.0),
        ("latent_indexed", "q8_0", 2048, 9.5625 + 1.0625),
        ("gated_delta", "f16", 2048, 2.0 + 1.5703125),
        ("block_sparse", "f16", 2048, 4.0 + 1.5),
        ("compressed_sparse", "f16", 2048, 3.0 + 1.0 + 0.25 + 0.5 + 0.125 + 0.5 + 0.0625),
        ("compressed_sparse", "f16", 32_768, 3.0 + 16.0 + 0.25 + 8.0 + 0.125 + 0.5 + 0.0625),
    ],
)
def test_every_class_as_its_log_says(kind: str, cache: str, context: int, mib: float, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny-F16.gguf", kind)
    model = describe(local_repository(tmp_path / "tiny-F16.gguf", "example/tiny"), None, {}).model
    assert sum(cells(model, Storage("llama.cpp", cache), context, 2, 512, False)) / MIB == mib
