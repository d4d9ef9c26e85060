"""What llama.cpp reserves for a step, read from the tables that its own code has filled."""

from __future__ import annotations

import pytest

from rigup.catalogue.buffers import LARGE, SMALL, BatchShape, Curve, Reserved, asked_layers, buffers_of
from rigup.units import MIB
from tests.oracle.sizes import RELEASE, files
from tests.unit.planner.asking import catalogue

LINE = Curve(((4096, 100.0), (8192, 200.0), (16_384, 300.0)), slot=7.0, whole=5.0)


@pytest.mark.parametrize(
    ("context", "mib"), [(256, 100), (4096, 100), (6144, 150), (8192, 200), (12_288, 250), (16_384, 300), (32_768, 500)]
)
def test_a_context_between_two_is_on_the_line_through_them(context: int, mib: float) -> None:
    assert LINE.mib(BatchShape(context, 1, SMALL)) == mib


def test_slots_and_weights_of_16_bits_add_to_it() -> None:
    assert LINE.mib(BatchShape(4096, 4, SMALL)) == 100 + 3 * 7
    assert LINE.mib(BatchShape(4096, 1, SMALL, whole=True)) == 105


@pytest.mark.parametrize(("micro_batch", "mib"), [(64, 100), (512, 100), (1280, 200), (2048, 300), (4096, 600)])
def test_a_micro_batch_between_two_is_on_the_line_through_them(micro_batch: int, mib: float) -> None:
    reserved = Reserved(Curve(((4096, 100.0), (8192, 100.0)), 0, 0), Curve(((4096, 300.0), (8192, 300.0)), 0, 0))
    assert (SMALL, LARGE) == (512, 2048)
    assert reserved.bytes(BatchShape(4096, 1, micro_batch)) == mib * MIB


def test_layers_more_or_less_than_usual_add_and_take() -> None:
    flat = Curve(((4096, 100.0), (8192, 100.0)), less=2.0, more=3.0)
    reserved = Reserved(flat, flat)
    assert [reserved.bytes(BatchShape(4096, 1, SMALL), layers) / MIB for layers in (-10, 0, 10)] == [80, 100, 130]
    assert reserved.layer_bytes(BatchShape(4096, 1, SMALL)) == 3 * MIB


def test_layers_are_those_of_four_gpus_by_place() -> None:
    assert [asked_layers(62, 4, place) for place in ("first", "middle", "last", "only")] == [16, 16, 15, 16]


def test_every_file_that_llama_cpp_was_asked_about_has_its_places() -> None:
    """Else: python -m tests.oracle.buffers FOLDER (docs/judges.md)."""
    lacking = set()
    for checkpoint, _ in files():
        model = catalogue().models_by_name[checkpoint.model]
        hosted = ("none", "some", "all") if model.experts else ("none",)
        found = buffers_of("llama.cpp", model, RELEASE)
        wanted = {(place, kind) for place in ("only", "first", "middle", "last") for kind in hosted}
        lacking |= {(model.name, place) for place in wanted - (found.places.keys() if found else set())}
    assert lacking == set()


def test_a_model_that_was_trained_further_has_those_of_its_shape() -> None:
    known = catalogue().models_by_name["Qwen3.6-27B"]
    tuned = known.model_copy(update={"name": "Qwen3.6-27B-Tuned", "context": 32_768, "vocab": known.vocab + 64})
    assert buffers_of("llama.cpp", tuned, RELEASE) == buffers_of("llama.cpp", known, RELEASE) is not None
    other = known.model_copy(update={"name": "Qwen3.6-27B-Wider", "intermediate": known.intermediate + 256})
    assert buffers_of("llama.cpp", other, RELEASE) is None


def test_a_release_that_was_not_asked_has_those_of_the_nearest() -> None:
    model = catalogue().models_by_name["gpt-oss-120b"]
    asked = buffers_of("llama.cpp", model, RELEASE)
    assert asked == buffers_of("llama.cpp", model, "b11000") == buffers_of("llama.cpp", model, "b99999")
    assert buffers_of("vllm", model, "0.33.0") is None
