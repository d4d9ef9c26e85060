"""What releases can serve by their own packages: architectures and parsers; and whether a template takes tools."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.catalogue.abilities import Kind
from rigup.catalogue.model import ParserNames
from rigup.planner.abilities import AUTOMATIC, instead_of, others_that, parsers_of, titles, unsupported
from rigup.planner.candidate import Candidate
from rigup.planner.rules.rule import Complaint, engine_name, refuses, warns

# Options of the engines that replace the checkpoint's own template.
_TEMPLATES = ("--chat-template", "--chat-template-file")
_WORDS: dict[Kind, tuple[str, str]] = {"tool_parsers": ("tools", "tool calls"), "reasoning_parsers": ("reasoning",) * 2}


@refuses("model-support", "the registry of models in the engine's own package, per version")
def model_support(candidate: Candidate) -> Iterator[Complaint]:
    """The engine version must have the model's architecture."""
    reason = unsupported(candidate.model, candidate.checkpoint, candidate.release, candidate.catalogue.engines)
    if reason is not None:
        yield reason


@warns("unread-architecture", "the registry of models in the engine's own package, per version")
def unread_architecture(candidate: Candidate) -> Iterator[Complaint]:
    """A version whose package was not read may lack an architecture that the version before it lacks."""
    abilities, name = candidate.release.abilities, candidate.architecture
    if not abilities.read and not (name and abilities.has("architectures", name)):
        yield (
            f"rigup does not know whether {engine_name(candidate)} supports the architecture of "
            f"{candidate.model.name}; {abilities.listed} does not",
            "run rigup lock, which reads it from the package",
        )


@refuses("parser", "the parser registries in the engine's wheel, per version")
def parser(candidate: Candidate) -> Iterator[Complaint]:
    """Tool calls and separate reasoning need a parser for the model in the engine version."""
    asked = candidate.service.tools or candidate.service.reasoning
    if candidate.engine.name == "llama.cpp" or not asked:
        return
    named = candidate.model.parsers.get(candidate.engine.name, ParserNames())
    there = parsers_of(candidate)
    unnamed: list[Kind] = []
    if candidate.service.tools and not there.tool:
        if named.tool:
            yield _absent(candidate, "tool_parsers", named.tool[0])
        else:
            unnamed.append("tool_parsers")
    if candidate.service.reasoning and not there.reasoning:
        if named.reasoning:
            yield _absent(candidate, "reasoning_parsers", named.reasoning[0])
        else:
            unnamed.append("reasoning_parsers")
    if unnamed:
        keys, words = (" and ".join(_WORDS[kind][which] for kind in unnamed) for which in (0, 1))
        yield (
            f"the catalogue names no {candidate.engine.title} parser of {words} for {candidate.model.name}",
            f"leave {keys} out, name the parser in the model's file, or use llama.cpp, which follows the template",
        )


@warns("parser-origin", "SGLang srt/parser/template_detection.py, from 0.5.12; the catalogue's models of the class")
def parser_origin(candidate: Candidate) -> Iterator[Complaint]:
    """Parsers that nothing names for the model may be wrong: its class's, or those that the engine finds itself."""
    service, there = candidate.service, parsers_of(candidate)
    asked = {"tools": service.tools and there.tool, "reasoning": service.reasoning and there.reasoning}
    keys = [key for key, names in asked.items() if names and key not in _given(candidate)]
    if not keys or candidate.engine.name == "llama.cpp":
        return
    hint = "ask it once the service runs; the parsers that fit go into flags: --tool-call-parser, --reasoning-parser"
    words = " and ".join(words for _, (key, words) in _WORDS.items() if key in keys)
    if AUTOMATIC in (*there.tool, *there.reasoning):
        yield (
            f"no parser of {words} is known for {candidate.model.name}: {candidate.engine.title} looks for one in the "
            "chat template as it starts, and goes without where it finds none",
            hint,
        )
    elif candidate.model.parsers_assumed:
        yield (
            f"the parsers of {words} are those of other models of {candidate.model.architectures[0]}; nothing says so "
            f"of {candidate.model.name}",
            hint,
        )


@warns(
    "template-tools", "transformers' apply_chat_template, which llama.cpp follows: a variable `tools` of the template"
)
def template_tools(candidate: Candidate) -> Iterator[Complaint]:
    """Tool calls need a chat template that tells the model of the tools."""
    service, checkpoint = candidate.service, candidate.checkpoint
    given = any(name in service.flags for name in _TEMPLATES)
    if service.tools and checkpoint.template_tools is False and not given:
        yield (
            f"the chat template of {checkpoint.label} does not take tools: the model may never call one",
            "leave tools out, or use a checkpoint whose template takes them",
        )


def _given(candidate: Candidate) -> frozenset[str]:
    """The keys whose parser the service's flags name."""
    options = {"--tool-call-parser": "tools", "--reasoning-parser": "reasoning"}
    flags = {name.replace("_", "-") for name in candidate.service.flags}
    return frozenset(key for option, key in options.items() if option in flags)


def _absent(candidate: Candidate, kind: Kind, name: str) -> Complaint:
    key, words = _WORDS[kind]
    having = others_that(candidate.release, (candidate.engine,), lambda other: other.abilities.has(kind, name))
    return (
        f"{engine_name(candidate)} has no parser `{name}` of {words}{titles(having)}",
        instead_of(candidate.release, having) or f"leave {key} out",
    )
