"""What a config.json leaves out is what transformers' class has, and says so; a damaged one stays an error."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.checkpoints.class_defaults import left_out, with_class_defaults
from rigup.checkpoints.config import Config
from rigup.checkpoints.layers import read_draft_layers, read_layers
from rigup.checkpoints.mixture import mixture
from rigup.errors import InputError
from tests.published.collect import read_configs

# As the repository has it: transformers left out all that is as in Gemma3TextConfig.
GEMMA_3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
}
FULL = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 8, "vocab_size": 9}
MISTRAL = {"model_type": "mistral", "num_key_value_heads": 8, **FULL}
CONFIGS = {repo: entry["config"] for repo, entry in read_configs().items() if "config" in entry}


def text(data: dict[str, Any]) -> Config:
    return with_class_defaults(Config(data, "config.json")).text_model


def test_a_language_model_within_another_has_the_shapes_of_its_class() -> None:
    found = {entry.kind: entry for entry in read_layers(text(GEMMA_3_4B))}
    assert set(found) == {"full", "sliding_window"}
    assert [number for number in found["full"].layers] == [5, 11, 17, 23, 29]
    for entry in found.values():
        assert entry.model_dump(include={"heads", "kv_heads", "head_dim"}) == {
            "heads": 8,
            "kv_heads": 4,
            "head_dim": 256,
        }
    said = left_out(Config(GEMMA_3_4B, "config.json"))
    assert said.startswith("head_dim, max_position_embeddings, num_attention_heads, num_key_value_heads, ")
    assert said.endswith(": transformers 5.23.0, the fields of its configuration classes, gemma3_text")


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        ({**MISTRAL, "sliding_window": None}, {"full"}),
        (MISTRAL, {"sliding_window"}),  # its class has a window of 4,096
        ({**MISTRAL, "model_type": "olmo3"}, {"full", "sliding_window"}),  # every fourth layer is full
        ({**MISTRAL, "model_type": "olmo3", "layer_types": ["full_attention"] * 8}, {"full"}),
        ({**MISTRAL, "model_type": "qwen2"}, {"full"}),  # a window that its class does not use
        ({**MISTRAL, "model_type": "nobody_knows"}, {"full"}),
    ],
)
def test_windows(data: dict[str, Any], kinds: set[str]) -> None:
    assert {entry.kind for entry in read_layers(text(data))} == kinds


def test_a_size_by_another_name_is_not_taken_again() -> None:
    experts = {"num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 64, "intermediate_size": 128}
    found = mixture(text({**MISTRAL, "model_type": "kimi_linear", "num_shared_experts": 3, **experts}))
    assert (found["experts"], found["experts_per_token"], found["shared_experts"]) == (4, 2, 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2}, "num_hidden_layers: missing"),
        ({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8}, "num_attention_heads: missing"),
        (
            {**MISTRAL, "model_type": "cwm"},
            "layer_types: missing, and cwm places its windows in a way that rigup does not know",
        ),
    ],
)
def test_what_no_class_can_say_is_refused_by_name(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        read_layers(text(data))
    assert error.value.message == f"config.json: {message}"


@pytest.mark.parametrize("repo", sorted(CONFIGS))
def test_a_configuration_that_says_everything_stays_as_it_is(repo: str) -> None:
    config = Config(CONFIGS[repo], repo)

    def read(one: Config) -> Any:
        try:
            return read_layers(one.text_model), read_draft_layers(one.text_model), mixture(one.text_model)
        except InputError as error:
            return error.message

    assert read(with_class_defaults(config)) == read(config)
