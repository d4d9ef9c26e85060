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
# What is shorter would take half of the text with it.
LEAST_LENGTH = 4

# A name has so many characters before the word that tells; without a bound a long line takes its length squared.
_BEFORE = r"[\w.-]{0,60}"
_NAME = _BEFORE + r"(?:key|token|secret|passw(?:or)?d|passphrase|credential|authorization)s?"
# What a line such as "name: value" must be called: "host key: " and "EOS token: " are everywhere.
_SURE = (
    _BEFORE + r"(?:api[-_]?key|(?:access|auth|bearer|hf|hub)[-_]?token|secret(?:[-_][\w-]*)?|passw(?:or)?d|passphrase)"
)
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_LIST = _BEFORE + r"api[-_]?keys?"
# of an option, which has no "--" within
_OPTION = r"(?<!-)--(?:[\w.]|-(?!-)){0,60}"
_OPTION_NAME, _OPTION_LIST = (_OPTION + name.removeprefix(_BEFORE) for name in (_NAME, _LIST))
_AUTHORIZATION = r"""\bauthorization["']?\s{0,9}[:=]\s{0,9}["']?"""
_SCHEME = r"(?:Basic|Bearer|Negotiate|Token)\s{1,9}"


def _between(quote: str) -> tuple[str, ...]:
    """Patterns of what ends at a quote, spaces and all: a word of a command line that is a list, an assignment."""
    rest = rf"(?:[^{quote}\\]|\\.)+"
    word = rf"{quote}\s*,\s*{quote}"
    return (
        rf"({_OPTION_LIST}{word})(?!-){rest}(?:{word}(?!-){rest})*",
        rf"({_OPTION_NAME}{word})(?!-){rest}",
        rf"((?<={quote}){_NAME}\s*=\s*){rest}(?={quote})",
        rf"({quote}{_NAME}{quote}\s*:\s*\[\s*){_VALUE}(?:\s*,\s*{_VALUE})*",
        rf"({quote}{_NAME}{quote}\s*:\s*){_VALUE}",
    )


# Of a name that says so, whatever follows it: in a header, in JSON, in an environment, on a command line, in a log.
_NAMED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # what follows a scheme of one word is a word; of any other all that follows goes
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
# Of their own form: tokens of the hub, of GitHub, Slack, Google, npm and the usual APIs, JSON Web Tokens, private keys.
_FORMS = (
    re.compile(r"\b(?:hf|ghp|gho|ghs|ghu|ghr|github_pat|sk|nvapi|glpat|dckr_pat|GOCSPX)[_-][A-Za-z0-9_-]{16,}"),
    re.compile(
        r"\b(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{10,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-AgEI[A-Za-z0-9_-]{16,}"
    ),
    re.compile(r"\bAIza[A-Za-z0-9_-]{35}|\bya29\.[A-Za-z0-9_.-]{16,}|\bAKIA[A-Z0-9]{16}\b"),
    re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){1,4}"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
)
# Names that say "key" or "token" and mean neither a secret nor anything like one.
_HARMLESS = re.compile(r'"?(?:kv_tokens|tokens|tokens_per_second|api_key_file|hub_token_file)"?\s*[:=]', re.IGNORECASE)
# A number of tokens, as engines have many options for.
_COUNT = re.compile(r"[^=:\s]*tokens[\"']?\s*[:= ,]\s*[\"']?\d+[\"']?", re.IGNORECASE)
# What a value stands under, as a key of a mapping or as an option; with "_" for "-".
_SECRET_NAME = re.compile(r"passw|passphrase|secret|api_?keys?$|credential|authorization$|cookie$", re.IGNORECASE)
_TOKEN_NAME = re.compile(r"token$", re.IGNORECASE)


def is_secret(name: str, value: Any) -> bool:
    """Whether a value is one by its name: a text, and under "token" more than a number."""
    if not isinstance(value, str) or not value:
        return False
    spelled = name.replace("-", "_")
    counts = value.replace(".", "").isdigit()
    return bool(_SECRET_NAME.search(spelled)) or (not counts and bool(_TOKEN_NAME.search(spelled)))


def secret_texts(name: str, value: Any) -> Iterator[str]:
    """The texts of a value that is a secret by its name: the value itself, or each of a list."""
    for text in value if isinstance(value, (list, tuple)) else (value,):
        if is_secret(name, text):
            yield text
            yield from text.split(",") if "," in text and re.fullmatch(_LIST, name.lstrip("-"), re.IGNORECASE) else ()


def _secret_words(words: Sequence[Any]) -> Iterator[int]:
    """Where on a command line the values of options stand that name a secret; of API keys there may be several."""
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
    """Each text that stands under the name of a secret: in mappings, and in command lines, however deep."""
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
    """Redacts texts, and values that are made of them; `secrets` are known by value."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spelled = {
            form
            for secret in secrets
            if len(secret) >= LEAST_LENGTH
            for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""))
        }
        self.known = sorted(spelled, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text without them, printable: a colour within a secret must not hide it."""
        text = printable(text)
        for secret in self.known:
            text = text.replace(secret, REDACTED)
        for form in _FORMS:
            text = form.sub(REDACTED, text)
        return "\n".join(_line(line) for line in text.split("\n"))

    def value(self, value: Any) -> Any:
        """The same value without secrets: frozen dataclasses, mappings, lists and tuples, each text within.

        Texts under a key that names a secret, and the words of an option that does, go whatever they are.
        """
        # the same few texts stand in a fleet's values again and again
        return _walk(value, cache(self.text))


def _walk(value: Any, text: Callable[[str], str], name: str = "") -> Any:
    """name: what the value stands under."""
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
