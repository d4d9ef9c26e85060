"""Detects an endpoint's engine, model and request format before it is measured.

Python 3.10 standard library only.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any

if __package__:
    from rigup.programs.bench.bench_ask import ask, ask_json, complaint, parsed
    from rigup.programs.bench.bench_prompts import COMMON, Form, Prompts, sample_text
    from rigup.programs.bench.bench_target import EndpointError, Target
    from rigup.programs.http_reader import printable
else:
    sys.dont_write_bytecode = True
    from bench_ask import ask, ask_json, complaint, parsed  # type: ignore[import-not-found, no-redef]
    from bench_prompts import COMMON, Form, Prompts, sample_text  # type: ignore[import-not-found, no-redef]
    from bench_target import EndpointError, Target  # type: ignore[import-not-found, no-redef]
    from http_reader import printable  # type: ignore[import-not-found, no-redef]

# what each engine calls itself in `owned_by` of /v1/models
ENGINES = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}
TRIAL_PROMPT = 16
WORDS_FOR_LENGTHS = 16
REPEATED = 32
# random prompts out of fewer different tokens would repeat themselves too soon
LEAST_POOL = 16
MOST_COUNT = 1 << 40
LONGEST_NAME = 500


@dataclass(frozen=True)
class Endpoint:
    """One endpoint, ready to be measured. context: the most tokens of a request, None where it does not say.

    lengths: how prompts get theirs: "token ids", "words counted by the engine" or "words, not counted".
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


def open_endpoint(target: Target, model: str | None, chat: bool, seconds: float, seed: int) -> Endpoint:
    """Queries the model, the tokenizer, and one answer. Raises EndpointError.

    seconds: how long an answer may take.
    """
    name, entry = _model(target, model)
    engine = ENGINES.get(str(entry.get("owned_by", "")), "unknown")
    version, slot_context = _about(target, engine)
    pool = [] if chat else _pool(target, engine, name, seed)
    form, added = _try(target, name, pool, chat, seconds, seed)
    lengths = "token ids"
    if not form.of_ids:
        form, lengths = _counted_words(target, form, seconds) if form.usage else (form, "words, not counted")
    elif added is not None:
        form = form.with_extra(added)
    context = slot_context or count(entry.get("max_model_len")) or None
    return Endpoint(target, engine, version, form, context, lengths)


def _model(target: Target, wanted: str | None) -> tuple[str, dict[str, Any]]:
    status, content = ask_json(target, "/v1/models")
    if status in (401, 403):
        hint = "name the file with the key: --api-key-file" if target.key is None else "check the service's key"
        raise EndpointError(
            "input", f"{target.url} {'requires an' if target.key is None else 'rejects this'} API key", hint
        )
    entries = content.get("data") if status == 200 and isinstance(content, dict) else None
    listed = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    served = {entry["id"]: entry for entry in listed if _is_name(entry.get("id"))}
    if not served:
        said = f"HTTP {status}" if status != 200 else "no list of models"
        raise EndpointError(
            "failed", f"{target.url}/v1/models: {said}", "check that the address is an OpenAI-compatible engine"
        )
    if wanted is not None and wanted not in served:
        raise EndpointError(
            "input", f'model "{wanted}" is not served at {target.url}', f"choose from: {', '.join(served)}"
        )
    name = wanted or next(iter(served))
    return name, served[name]


def _about(target: Target, engine: str) -> tuple[str, int | None]:
    """The engine's version, and the context of one slot where requests do not get the model's."""
    if engine == "llama.cpp":
        status, props = ask_json(target, "/props")
        if status == 200 and isinstance(props, dict):
            settings = props.get("default_generation_settings")
            context = count(settings.get("n_ctx")) if isinstance(settings, dict) else None
            return printable(props.get("build_info", ""), 80), context or None
    path = {"vllm": "/version", "sglang": "/get_server_info"}.get(engine)
    status, said = ask_json(target, path) if path else (0, None)
    return (printable(said.get("version", ""), 80) if status == 200 and isinstance(said, dict) else ""), None


def _pool(target: Target, engine: str, model: str, seed: int) -> list[int]:
    """Tokens for prompts, from the engine's own tokenizer; none where it has no way to ask it."""
    text = sample_text(seed)
    body = {"content": text} if engine == "llama.cpp" else {"model": model, "prompt": text}
    status, said = ask_json(target, "/tokenize", {**body, "add_special": False, "add_special_tokens": False})
    tokens = said.get("tokens") if status == 200 and isinstance(said, dict) else None
    ids = {token for token in tokens if count(token) is not None} if isinstance(tokens, list) else set()
    return sorted(ids) if len(ids) >= LEAST_POOL else []


def _try(target: Target, model: str, pool: list[int], chat: bool, seconds: float, seed: int) -> tuple[Form, int | None]:
    """The first way of asking that the endpoint takes, and how many tokens it adds to a prompt, if it says so."""
    forms = [
        Form(model, pieces, chat, ignore_eos, usage)
        for pieces in ((pool,) if pool else ()) + (COMMON,)
        for usage in (True, False)
        for ignore_eos in (True, False)
    ]
    status, body = 0, b""
    for form in forms:
        status, said = ask(target, form.path, Prompts(form, TRIAL_PROMPT, seed).body(2), seconds)
        body = said[0]
        if status == 200 and (trouble := error_in(parsed(body))) is None:
            counted = prompt_tokens(said)
            return (form, None if counted is None else counted - TRIAL_PROMPT)
        if status == 200:
            body, status = str(trouble).encode(), 400
        if status not in (400, 422):
            break
    hint = "try --chat" if status in (404, 405) and not chat else "check the engine's log"
    raise EndpointError("failed", f"{target.url}{forms[0].path}: {complaint(status, body)}", hint)


def _counted_words(target: Target, form: Form, seconds: float) -> tuple[Form, str]:
    """Words that are one token each, by the engine's own count of prompts, and how many tokens it adds to them."""

    def counted(text: str) -> int | None:
        before, after = form.around()
        status, said = ask(target, form.path, before + text.encode() + after + b"1}", seconds)
        return prompt_tokens(said) if status == 200 else None

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
    chosen = Form(form.model, words, form.chat, form.ignore_eos, form.usage, added)
    return chosen, "words counted by the engine"


def prompt_tokens(events: list[bytes]) -> int | None:
    """What the engine counted in the prompt."""
    for event in reversed(events):
        content = parsed(event)
        usage = content.get("usage") if isinstance(content, dict) else None
        if isinstance(usage, dict) and (found := count(usage.get("prompt_tokens"))):
            return found
    return None


def count(said: Any) -> int | None:
    """An integer from an endpoint; None if implausible."""
    return said if isinstance(said, int) and not isinstance(said, bool) and 0 <= said <= MOST_COUNT else None


def _is_name(said: Any) -> bool:
    return isinstance(said, str) and 0 < len(said) <= LONGEST_NAME and said.isprintable()


def error_in(content: Any) -> str | None:
    """The error that an event of a stream, or an answer with status 200, carries."""
    said = content.get("error") if isinstance(content, dict) else None
    if not said:
        return None
    text = said.get("message") if isinstance(said, dict) else said
    return printable(text, 160) or "an error without a message"


def metric(text: str, *names: str) -> float | None:
    """The sum of one of an engine's metrics over all its labels; None where it is not among them."""
    pattern = "^(?:" + "|".join(map(re.escape, names)) + r")(?:\{[^\n]*\})? ([0-9.eE+-]{1,40})(?: |$)"
    values = [value for said in re.findall(pattern, text, re.MULTILINE) if (value := _amount(said)) is not None]
    return sum(values) if values else None


def _amount(said: str) -> float | None:
    try:
        value = float(said)
    except ValueError:
        return None
    return value if 0 <= value <= MOST_COUNT else None
