"""Detects an endpoint's engine, model and request format before it is measured."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from rigup.programs.bench.bench_prompts import COMMON, Form, Prompts, sample_text
from rigup.programs.bench.bench_target import EndpointError, Target, ask, ask_json, complaint, parsed
from rigup.programs.http_reader import printable

# each engine's value of `owned_by` in /v1/models
ENGINES = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}
TRIAL_PROMPT = 16
WORDS_FOR_LENGTHS = 16
REPEATED = 32
# prompts drawn from fewer distinct tokens would repeat themselves too soon
LEAST_POOL = 16
MOST_COUNT = 1 << 40
LONGEST_NAME = 500


@dataclass(frozen=True)
class MeasuredEndpoint:
    """One endpoint, ready to be measured. context: the maximum tokens of a request, None if it is not reported.

    lengths: how prompt lengths are set: "token ids", "words counted by the engine" or "words, not counted".
    """

    target: Target
    engine: str
    version: str
    form: Form
    context: int | None
    lengths: str

    def as_json(self) -> dict[str, Any]:
        """The part that results store."""
        return {
            "url": self.target.url,
            "model": self.form.model,
            "engine": self.engine,
            "version": self.version,
            "context": self.context,
            "api": self.form.path,
            "prompts": self.lengths,
            "ignores_eos": self.form.ignore_eos,
            "counts_tokens": self.form.usage,
        }


def open_endpoint(target: Target, model: str | None, chat: bool, seconds: float, seed: int) -> MeasuredEndpoint:
    """Reads the model list, the tokenizer and one answer. Raises EndpointError.

    seconds: the time limit of one answer.
    """
    name, entry = _model(target, model)
    engine = ENGINES.get(str(entry.get("owned_by", "")), "unknown")
    version, slot_context = _about(target, engine, name)
    pool = [] if chat else _pool(target, engine, name, seed)
    form, added = _try(target, name, pool, chat, seconds, seed)
    lengths = "token ids"
    if not form.of_ids:
        form, lengths = _counted_words(target, form, seconds) if form.usage else (form, "words, not counted")
    elif added is not None:
        form = replace(form, extra=added)
    context = slot_context or count(entry.get("max_model_len")) or None
    return MeasuredEndpoint(target, engine, version, form, context, lengths)


def _model(target: Target, wanted: str | None) -> tuple[str, dict[str, Any]]:
    status, content = ask_json(target, "/v1/models")
    if status in (401, 403):
        hint = "name the file with the key: --api-key-file" if target.key is None else "check the service's key"
        raise EndpointError(
            "input", f"{target.url} {'requires an' if target.key is None else 'rejects this'} API key", hint
        )
    served = served_models(content) if status == 200 else {}
    if not served:
        problem = f"HTTP {status}" if status != 200 else "no list of models"
        raise EndpointError(
            "failed", f"{target.url}/v1/models: {problem}", "check that the address is an OpenAI-compatible engine"
        )
    if wanted is not None and wanted not in served:
        raise EndpointError(
            "input", f'model "{wanted}" is not served at {target.url}', f"choose from: {', '.join(served)}"
        )
    name = wanted or next(iter(served))
    return name, served[name]


def served_models(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The entries of a /v1/models by name, and then by alias; what is not an entry or a name is left out."""
    entries = content.get("data")
    listed = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    served = {entry["id"]: entry for entry in listed if _is_name(entry.get("id"))}
    for entry in list(served.values()):
        aliases = entry.get("aliases")
        for alias in aliases if isinstance(aliases, list) else ():
            if _is_name(alias):
                served.setdefault(alias, entry)
    return served


def of_model(path: str, engine: str, model: str) -> str:
    """The path with the model's name: llama.cpp's router asks for it, and is not to load the model for that."""
    return f"{path}?model={quote(model, safe='')}&autoload=false" if engine == "llama.cpp" else path


def _about(target: Target, engine: str, model: str) -> tuple[str, int | None]:
    """The engine's version, and the context of one slot if a request gets less than the model's context."""
    if engine == "llama.cpp":
        status, props = ask_json(target, of_model("/props", engine, model))
        if status == 200:
            settings = props.get("default_generation_settings")
            context = count(settings.get("n_ctx")) if isinstance(settings, dict) else None
            build = printable(props.get("build_info", ""), 80)
            number, _, commit = build.partition("-")
            # rigup's builds have no commit of their own
            return number if commit == number else build, context or None
    path = {"vllm": "/version", "sglang": "/get_server_info"}.get(engine)
    status, content = ask_json(target, path) if path else (0, {})
    return (printable(content.get("version", ""), 80) if status == 200 else ""), None


def _pool(target: Target, engine: str, model: str, seed: int) -> list[int]:
    """Token ids for prompts, from the engine's tokenizer; empty if the engine does not offer one."""
    text = sample_text(seed)
    body: dict[str, Any] = {"model": model, "content" if engine == "llama.cpp" else "prompt": text}
    body |= {"add_special": False, "add_special_tokens": False}
    status, content = ask_json(target, of_model("/tokenize", engine, model), body)
    tokens = content.get("tokens") if status == 200 else None
    ids = {token for token in tokens if count(token) is not None} if isinstance(tokens, list) else set()
    return sorted(ids) if len(ids) >= LEAST_POOL else []


def _try(target: Target, model: str, pool: list[int], chat: bool, seconds: float, seed: int) -> tuple[Form, int | None]:
    """The first request format that the endpoint accepts, and how many tokens it adds to a prompt, if reported."""
    forms = [
        Form(model, pieces, chat, ignore_eos, usage)
        for pieces in ((pool,) if pool else ()) + (COMMON,)
        for usage in (True, False)
        for ignore_eos in (True, False)
    ]
    status, body = 0, b""
    for form in forms:
        status, events = ask(target, form.path, Prompts(form, TRIAL_PROMPT, seed).body(2), seconds)
        body = events[0]
        if status == 200 and (trouble := error_in(parsed(body))) is None:
            counted = prompt_tokens(events)
            return (form, None if counted is None else counted - TRIAL_PROMPT)
        if status == 200:
            body, status = str(trouble).encode(), 400
        if status not in (400, 422):
            break
    hint = "try --chat" if status in (404, 405) and not chat else "check the engine's log"
    raise EndpointError("failed", f"{target.url}{forms[0].path}: {complaint(status, body)}", hint)


def _counted_words(target: Target, form: Form, seconds: float) -> tuple[Form, str]:
    """Words that are one token each by the engine's own count, and how many tokens the engine adds to a prompt."""

    def counted(text: str) -> int | None:
        before, after = form.around()
        status, events = ask(target, form.path, before + text.encode() + after + b"1}", seconds)
        return prompt_tokens(events) if status == 200 else None

    kept: dict[str, int] = {}
    for word in COMMON:
        once, many = counted(word), counted(" ".join([word] * REPEATED))
        if once is None or many is None:
            return form, "words, not counted"
        if many - once == REPEATED - 1:
            kept[word] = once - 1
        if len(kept) == WORDS_FOR_LENGTHS:
            break
    if not kept:
        return form, "words, not counted"
    added = max(set(kept.values()), key=list(kept.values()).count)
    words = [word for word, extra in kept.items() if extra == added]
    return replace(form, pieces=words, extra=added), "words counted by the engine"


def prompt_tokens(events: list[bytes]) -> int | None:
    """The number of prompt tokens that the engine counted."""
    for event in reversed(events):
        content = parsed(event)
        usage = content.get("usage") if isinstance(content, dict) else None
        if isinstance(usage, dict) and (found := count(usage.get("prompt_tokens"))):
            return found
    return None


def count(value: Any) -> int | None:
    """A count from an endpoint; None if it is not a plausible integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNT else None


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()


def error_in(content: Any) -> str | None:
    """The error in an event of a stream, or in a response with status 200."""
    error = content.get("error") if isinstance(content, dict) else None
    if not error:
        return None
    text = error.get("message") if isinstance(error, dict) else error
    return printable(text, 160) or "an error without a message"


def metric(text: str, *names: str) -> float | None:
    """The sum of one metric of the engine over all its labels; None if the engine does not have the metric."""
    pattern = "^(?:" + "|".join(map(re.escape, names)) + r")(?:\{[^\n]*\})? ([0-9.eE+-]{1,40})(?: |$)"
    values = [value for digits in re.findall(pattern, text, re.MULTILINE) if (value := _amount(digits)) is not None]
    return sum(values) if values else None


def _amount(digits: str) -> float | None:
    try:
        value = float(digits)
    except ValueError:
        return None
    return value if 0 <= value <= MOST_COUNT else None
