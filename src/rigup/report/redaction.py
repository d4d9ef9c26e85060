"""Redacts secrets in text that leaves the fleet: known secrets, and text that looks like one. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import quote

from rigup.printable import printable

REDACTED = "[redacted]"
# Shorter secrets would match in too many places.
LEAST_LENGTH = 4

# Limits the characters before the word that marks a secret: without it long lines take quadratic time.
_BEFORE = r"[\w.-]{0,60}"
_NAME = _BEFORE + r"(?:key|token|secret|passw(?:or)?d|passphrase|credential|authorization)s?"
# Names that mark a secret in a line like "name: value"; others such as "host key: " and "EOS token: " are common.
_SURE = (
    _BEFORE + r"(?:api[-_]?key|(?:access|auth|bearer|hf|hub)[-_]?token|secret(?:[-_][\w-]*)?|passw(?:or)?d|passphrase)"
)
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_LIST = _BEFORE + r"api[-_]?keys?"
# an option's name, which does not contain "--"
_OPTION = r"(?<!-)--(?:[\w.]|-(?!-)){0,60}"
_OPTION_NAME, _OPTION_LIST = (_OPTION + name.removeprefix(_BEFORE) for name in (_NAME, _LIST))
_AUTHORIZATION = r"""\bauthorization["']?\s{0,9}[:=]\s{0,9}["']?"""
_SCHEME = r"(?:Basic|Bearer|Negotiate|Token)\s{1,9}"


def _between(quote: str) -> tuple[str, ...]:
    """Patterns for values that end at a quote and may contain spaces: words of a list, and assignments."""
    rest = rf"(?:[^{quote}\\]|\\.)+"
    word = rf"{quote}\s*,\s*{quote}"
    return (
        rf"({_OPTION_LIST}{word})(?!-){rest}(?:{word}(?!-){rest})*",
        rf"({_OPTION_NAME}{word})(?!-){rest}",
        rf"((?<={quote}){_NAME}\s*=\s*){rest}(?={quote})",
        rf"({quote}{_NAME}{quote}\s*:\s*\[\s*){_VALUE}(?:\s*,\s*{_VALUE})*",
        rf"({quote}{_NAME}{quote}\s*:\s*){_VALUE}",
    )


# Values after a name of a secret: in a header, in JSON, in an environment, on a command line, in a log.
_NAMED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # schemes with one word redact one word; others redact the rest
        rf"""({_AUTHORIZATION}{_SCHEME})[^\s"',]+""",
        rf"""({_AUTHORIZATION}Digest\s).*""",
        rf"""({_AUTHORIZATION})(?!\s|{_SCHEME}|Digest\s)[^"'\r\n]+""",
        r"""((?<![\w-])(?:set-)?cookie["']?\s{0,9}[:=]\s{0,9}["']?)[^"'\r\n]+""",
        # a header as a word of a command line: -H 'x-api-key: ...'
        rf"""((?<=["']){_NAME}\s{{0,9}}:\s{{0,9}})[^"'\r\n]+""",
        *_between('"'),
        *_between("'"),
        # a line of its own, as in a file or behind a journal's "program[1]: "
        r"((?:^|\]:)\s*(?:export\s+|-\s+)?[\w.-]{0,60}(?:passw(?:or)?d|passphrase)\s*[:=]\s*)\S.*",
        rf"""((?:^|\]:)\s*(?:-\s+)?{_BEFORE}token["']?\s*:[ \t]+)(?:{_VALUE}|[^\s"',;]+)""",
        r"""(\btoken\s?:[ \t]{1,9})(?=[^\s\d]*\d)(?=[^\sA-Za-z]*[A-Za-z])[\w.~+/=-]{12,}""",
        rf"""((?<![\w.-]){_LIST}["']?\s*=\s*)(?:{_VALUE}|[^\s"',;\]]+)(?:,[^\s"',;\]=]+(?=[\s"',;\]]|$))*""",
        rf"""((?<![\w.-]){_NAME}["']?\s*=\s*)(?:{_VALUE}|[^\s"',;\]]+)""",
        rf"""({_OPTION_LIST}[ =])(?!-)(?:{_VALUE}|["']?[^\s"']+)""",
        rf"""({_OPTION_NAME}[ =])(?!-)(?:{_VALUE}|["']?[^\s"',]+)""",
        rf"""((?<![\w."'-]){_SURE}\s*:[ \t]+)(?:{_VALUE}|[^\s"',;]+)""",
        r"(\bBearer\s+)[^\s\"',]+",
        r"(\b[a-z][a-z0-9+.-]{0,30}://[^/\s:@]*:)[^/\s@]+(?=@)",
        r"""(\b(?:git\+)?https?://)[^/\s:@"']+:?(?=@)""",
    )
)
# Secrets of known formats: tokens of the hub, GitHub, Slack, Google, npm and usual APIs, JSON Web Tokens, private keys.
_FORMS = (
    re.compile(r"\b(?:hf|ghp|gho|ghs|ghu|ghr|github_pat|sk|nvapi|glpat|dckr_pat|GOCSPX)[_-][A-Za-z0-9_-]{16,}"),
    re.compile(
        r"\b(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{10,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-AgEI[A-Za-z0-9_-]{16,}"
    ),
    re.compile(r"\bAIza[A-Za-z0-9_-]{35}|\bya29\.[A-Za-z0-9_.-]{16,}|\bAKIA[A-Z0-9]{16}\b"),
    re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){1,4}"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
)
# Names with "key" or "token" that are not secrets.
_HARMLESS = re.compile(r'"?(?:kv_tokens|tokens|tokens_per_second|api_key_file|hub_token_file)"?\s*[:=]', re.IGNORECASE)
# A number of tokens, as in many options of engines.
_COUNT = re.compile(r"[^=:\s]*tokens[\"']?\s*[:= ,]\s*[\"']?\d+[\"']?", re.IGNORECASE)
# Names of keys of a mapping, and of options, that mark a secret; with "_" for "-".
_SECRET_NAME = re.compile(r"passw|passphrase|secret|api_?keys?$|credential|authorization$|cookie$", re.IGNORECASE)
_TOKEN_NAME = re.compile(r"token$", re.IGNORECASE)


def is_secret(name: str, value: Any) -> bool:
    """Whether a value is a secret by its name: any text, or for "token" a text that is not a number."""
    if not isinstance(value, str) or not value:
        return False
    spelled = name.replace("-", "_")
    counts = value.replace(".", "").isdigit()
    return bool(_SECRET_NAME.search(spelled)) or (not counts and bool(_TOKEN_NAME.search(spelled)))


def secret_texts(name: str, value: Any) -> Iterator[str]:
    """The texts of a value that is a secret by its name: the value itself, or each item of a list."""
    for text in value if isinstance(value, (list, tuple)) else (value,):
        if is_secret(name, text):
            yield text
            yield from text.split(",") if "," in text and re.fullmatch(_LIST, name.lstrip("-"), re.IGNORECASE) else ()


def _secret_words(words: Sequence[Any]) -> Iterator[int]:
    """The positions of words of a command line that are values of secret options; API keys may have several."""
    option = ""
    for index, word in enumerate(words):
        if isinstance(word, str) and word.startswith("-"):
            option = word
        elif is_secret(option, word):
            yield index
            option = option if re.fullmatch(f"--{_LIST}", option, re.IGNORECASE) else ""
        else:
            option = ""


def secrets_within(value: Any) -> Iterator[str]:
    """Every text under the name of a secret: in mappings and command lines, at any depth."""
    if isinstance(value, dict):
        for key, kept in value.items():
            yield from secret_texts(str(key), kept)
            yield from secrets_within(kept)
    elif isinstance(value, (list, tuple)):
        for index in _secret_words(value):
            yield value[index]
            yield from value[index].split(",") if "," in value[index] else ()
        for kept in value:
            yield from secrets_within(kept)


class Redactor:
    """Redacts texts, and values that contain texts; `secrets` are known by value."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spelled = {
            form
            for secret in secrets
            if len(secret) >= LEAST_LENGTH
            for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""))
        }
        self.known = sorted(spelled, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text without secrets, printable: a colour code within a secret must not hide it."""
        text = printable(text)
        for secret in self.known:
            text = text.replace(secret, REDACTED)
        for form in _FORMS:
            text = form.sub(REDACTED, text)
        return "\n".join(_line(line) for line in text.split("\n"))

    def value(self, value: Any) -> Any:
        """The same value without secrets: frozen dataclasses, mappings, lists and tuples, with all texts in them.

        Texts under a key that names a secret, and the values of such options, are always redacted.
        """
        # a fleet's values repeat the same few texts
        return _walk(value, cache(self.text))


def _walk(value: Any, text: Callable[[str], str], name: str = "") -> Any:
    """name: the key of the value."""
    if isinstance(value, str):
        return REDACTED if is_secret(name, value) else text(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _walk(getattr(value, field.name), text) for field in fields(value)})
    if isinstance(value, dict):
        return {text(str(key)): _walk(kept, text, str(key)) for key, kept in value.items()}
    if isinstance(value, (list, tuple)):
        words = [_walk(kept, text, name) for kept in value]
        for index in _secret_words(value):
            words[index] = REDACTED
        return type(value)(words)
    return value


def _line(line: str) -> str:
    for pattern in _NAMED:
        line = pattern.sub(_replaced, line)
    return line


def _replaced(match: re.Match[str]) -> str:
    name, whole = match[1], match[0]
    known = whole[len(name) :].strip("\"'") in (REDACTED, REDACTED[:-1])
    if known or _HARMLESS.match(name.lstrip("-")) or _COUNT.fullmatch(whole):
        return whole
    mark = whole[-1] if name[0] in "\"'" and name.rstrip(" [").endswith(":") and whole[-1] in "\"'" else ""
    return f"{name}{mark}{REDACTED}{mark}"
