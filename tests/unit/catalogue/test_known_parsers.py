"""The parsers that belong to models, by the names of their repositories."""

from __future__ import annotations

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.data_files import DATA, read_entries
from rigup.catalogue.known_parsers import KnownParsers, parsers_of

ENTRIES = read_entries(DATA / "parsers", "parsers", KnownParsers)
CATALOGUE = load_catalogue()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.names[0])
def test_every_parser_is_in_the_newest_release_and_has_a_source(entry: KnownParsers) -> None:
    assert entry.by_engine.keys() == entry.sources.keys()
    for name, parsers in entry.by_engine.items():
        release = CATALOGUE.engines_by_name[name].versions[-1]
        assert not [one for one in parsers.tool if release.abilities.lacks("tool_parsers", one)]
        reasoning = (*parsers.reasoning, *parsers.reasoning_inline)
        assert not [one for one in reasoning if release.abilities.lacks("reasoning_parsers", one)]


@pytest.mark.parametrize(
    ("repo", "tool", "reasoning"),
    [
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", ("hermes",), ()),
        ("nvidia/Qwen3-235B-A22B-NVFP4", ("hermes",), ("qwen3",)),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", ("qwen3_coder",), ()),
        ("unsloth/gpt-oss-120b-GGUF", ("openai",), ("openai_gptoss",)),
        ("zai-org/GLM-5.2", ("glm47",), ("glm45",)),
        ("deepseek-ai/DeepSeek-V4.1-Flash", ("deepseek_v41",), ("deepseek_v41",)),
        ("deepseek-ai/DeepSeek-V4-Flash-0731", ("deepseek_v4",), ("deepseek_v4",)),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B", ("qwen3_xml",), ("nemotron_v3",)),
        ("zai-org/GLM-5.3-Flash", ("glm47",), ("glm45",)),
        ("google/Gemma-4-31B-it", ("gemma4",), ("gemma4",)),
        ("mistralai/Ministral-3-8B-Reasoning-2512", ("mistral",), ("mistral",)),
        ("mistralai/Ministral-3-14B-Instruct-2512", ("mistral",), ()),
        ("mistralai/Devstral-Small-2-24B-Instruct-2512", ("mistral",), ()),
    ],
)
def test_a_repositorys_parsers(repo: str, tool: tuple[str, ...], reasoning: tuple[str, ...]) -> None:
    found = parsers_of(repo)
    assert found is not None and found.vllm is not None
    assert (found.vllm.tool, found.vllm.reasoning) == (tool, reasoning)


@pytest.mark.parametrize("repo", ["zai-org/GLM-5.9", "org/GLM-50", "org/SmolLM2-135M-Instruct", "zai-org/GLM-4.75"])
def test_others_are_not_guessed(repo: str) -> None:
    assert parsers_of(repo) is None


def test_the_catalogues_models_say_the_same() -> None:
    for model in CATALOGUE.served:
        found = parsers_of(model.name)
        assert model.parsers == (found.by_engine if found else {}), model.name
