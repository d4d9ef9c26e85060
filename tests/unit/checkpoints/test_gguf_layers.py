"""What a GGUF file alone tells of its layers: the same as the maker's configuration, for each class of attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rigup.attention import KINDS
from rigup.attention.attention_class import Storage
from rigup.catalogue.model import Model
from rigup.checkpoints.describe import describe
from rigup.checkpoints.gguf_layers import layer_keys
from rigup.checkpoints.repository import local_repository
from rigup.errors import InputError
from rigup.planner.memory.kv_cache import layer_caches
from tests.tiny.checkpoint import CLASSES, name_of, write_gguf, write_safetensors

# What is divided differently in the two: weights of draft layers, state types. These must be equal.
SAME = ("layers", "hidden", "vocab", "experts", "experts_per_token", "expert_intermediate", "dense_layers")


def described(folder: Path) -> Model:
    return describe(local_repository(folder, f"example/{folder.name}"), None, {}).model


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_a_file_alone_tells_what_the_configuration_tells(kind: str, tmp_path: Path) -> None:
    write_safetensors(tmp_path / name_of(kind), kind)
    write_gguf(tmp_path / "gguf" / f"{name_of(kind)}-F16.gguf", kind)
    ours, theirs = described(tmp_path / "gguf"), described(tmp_path / name_of(kind))
    storage = Storage("llama.cpp", "f16")
    assert kind in {entry.kind for entry in ours.attention}
    assert layer_caches(ours, storage) == layer_caches(theirs, storage)
    assert {key: getattr(ours, key) for key in SAME} == {key: getattr(theirs, key) for key in SAME}


def test_every_class_has_a_tiny_model() -> None:
    made = {kind for name in CLASSES for kind in (name, *({"none"} if name == "mamba2" else ()))}
    assert made == set(KINDS)


@pytest.mark.parametrize(
    "said",
    [
        {"wkv.head_size": 64},
        {"shortconv.l_cache": 3, "attention.head_count_kv": (0, 0, 8, 0)},
        {"ssm.state_size": 128, "ssm.inner_size": 3072, "attention.head_count_kv": 2},  # Falcon-H1: both in each layer
    ],
)
def test_layers_that_keep_a_state_in_an_unknown_way_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        layer_keys(said, "rwkv7", 4, (), "org/name: x.gguf")
    assert refused.value.message == "org/name: x.gguf: rigup does not know what each layer of rwkv7 caches"
    assert refused.value.hint == "choose a repository that has config.json beside the GGUF files"


def test_an_indexer_is_shared_where_a_layer_has_no_weights_of_its_own() -> None:
    said = {"attention.kv_lora_rank": 512, "attention.key_length_mla": 256, "rope.dimension_count": 64}
    names = {"blk.0.indexer.attn_k.weight", "blk.2.indexer.attn_k.weight"}
    found = layer_keys(said, "glm-dsa", 4, names, "x")
    assert found["indexer_types"] == ["full", "shared", "full", "shared"]
    listed = layer_keys({**said, "attention.indexer.types": (1, 1, 0, 0)}, "glm-dsa", 4, names, "x")
    assert listed["indexer_types"] == ["full", "full", "shared", "shared"]
