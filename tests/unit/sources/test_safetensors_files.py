"""The files of a checkpoint in Mistral's own format; those in transformers' are in test_gguf_files."""

from __future__ import annotations

import json

import pytest

from rigup.errors import InputError
from rigup.sources.safetensors_files import MISTRAL, TRANSFORMERS, safetensors_files

REPO = "org/model"
SHARDS = ["consolidated-00001-of-00002.safetensors", "consolidated-00002-of-00002.safetensors"]
BESIDE = ["SYSTEM_PROMPT.txt", "chat_template.jinja", "config.json", "generation_config.json", "tekken.json"]
MISTRALS = ["consolidated.safetensors.index.json", "params.json", "tokenizer.model.v3"]
TRANSFORMERS_OWN = ["model-00001-of-00001.safetensors", "model.safetensors.index.json"]
UNWANTED = ["README.md", "images/chart.png", "consolidated.00.pth", "original/params.json"]
EVERY = [*SHARDS, *BESIDE, *MISTRALS, *TRANSFORMERS_OWN, *UNWANTED]


def index(*names: str) -> bytes:
    return json.dumps({"weight_map": {f"t{n}": name for n, name in enumerate(names)}}).encode()


@pytest.mark.parametrize("content", [index(*SHARDS), None])
def test_one_format_of_two(content: bytes | None) -> None:
    found = safetensors_files(REPO, EVERY, content, MISTRAL)
    assert found[:2] == tuple(SHARDS)
    assert sorted(found) == sorted([*SHARDS, *BESIDE, *MISTRALS])
    other = safetensors_files(REPO, EVERY, None, TRANSFORMERS)
    assert sorted(other) == sorted([*TRANSFORMERS_OWN, *BESIDE])


def test_one_file_without_an_index() -> None:
    found = safetensors_files(REPO, ["consolidated.safetensors", "params.json", "tekken.json"], None, MISTRAL)
    assert found == ("consolidated.safetensors", "params.json", "tekken.json")


def test_shards_that_are_missing_are_named() -> None:
    with pytest.raises(InputError, match=r"1 of 2 weight files are missing .*: consolidated-00002-of-00002"):
        safetensors_files(REPO, [SHARDS[0], "params.json"], None, MISTRAL)


@pytest.mark.parametrize(("there", "asked"), [(SHARDS, TRANSFORMERS), (TRANSFORMERS_OWN, MISTRAL)])
def test_an_entry_of_the_other_format_is_told_from_no_weights(there: list[str], asked: object) -> None:
    stored = TRANSFORMERS if asked is TRANSFORMERS else MISTRAL
    with pytest.raises(InputError) as raised:
        safetensors_files(REPO, there, None, stored)
    other = MISTRAL if stored is TRANSFORMERS else TRANSFORMERS
    assert raised.value.message == f"{REPO}: the weights are in {other.title}, not in {stored.title}"
    assert REPO in str(raised.value.hint)
