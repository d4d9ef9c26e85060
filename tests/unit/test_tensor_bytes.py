"""Bytes by tensor add up, and name every layer once."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rigup.tensor_bytes import TensorBytes

TABLE = {
    "embedding": 1000,
    "head": 900,
    "norms": 1,
    "vision": 50,
    "mtp": 70,
    "layers": [
        {"layers": "0-1", "attention": 10, "key_value": 4, "replicated": 2, "dense": 100, "norms": 1},
        {"layers": "2-3", "attention": 10, "router": 3, "experts": 500, "shared_experts": 20},
    ],
}


def test_the_parts_add_up() -> None:
    tensors = TensorBytes.model_validate(TABLE)
    assert [part.total for part in tensors.by_layer] == [117, 117, 533, 533]
    assert tensors.body == 1300
    assert tensors.total == 1300 + 1000 + 900 + 1 + 50 + 70


@pytest.mark.parametrize("second", ["1-3", "3-4", "2-2, 4"])
def test_each_layer_is_named_once(second: str) -> None:
    wrong = {**TABLE, "layers": [{"layers": "0-1"}, {"layers": second}]}
    with pytest.raises(ValidationError, match="each layer from 0 on must be in one entry, and in no other"):
        TensorBytes.model_validate(wrong)


@pytest.mark.parametrize("change", [{"layers": []}, {"embedding": -1}, {"heads": 1}])
def test_what_is_not_such_a_table_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TensorBytes.model_validate({**TABLE, **change})
