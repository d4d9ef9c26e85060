"""Takes secrets out of text that is going to strangers: those that are known, and what looks like one. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

REDACTED = "[redacted]"
# What is shorter would take half of the text with it.
LEAST_LENGTH = 4

_NAME = r"[\w.-]*(?:key|token|secret|passw(?:or)?d|credential|authorization)s?"
# Of a name that says so, whatever follows it: in JSON, in an environment, on a command line, in a header.
_NAMED = (
    re.compile(rf'("{_NAME}"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE),
    re.compile(rf"""({_NAME}["']?\s*=\s*)(?:"[^"]*"|'[^']*'|[^\s"',;\]]+)""", re.IGNORECASE),
    re.compile(rf'(--{_NAME}(?:[ =]|",\s*"))[^\s",]+', re.IGNORECASE),
    re.compile(r"(\bBearer\s+)[^\s\"',]+", re.IGNORECASE),
    re.compile(r"(\b[a-z][a-z0-9+.-]*://[^/\s:@]*:)[^/\s@]+(?=@)", re.IGNORECASE),
)
# Of their own form: tokens of the hub, of GitHub and of the usual APIs, private keys.
_FORMS = (
    re.compile(r"\b(?:hf|ghp|gho|ghs|github_pat|sk|nvapi|glpat)[_-][A-Za-z0-9_-]{16,}"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
)
# Names that say "key" or "token" and mean neither a secret nor anything like one.
_HARMLESS = re.compile(r'"?(?:kv_tokens|tokens|tokens_per_second|api_key_file|hub_token_file)"?\s*[:=]', re.IGNORECASE)
# A number of tokens, as engines have many options for.
_COUNT = re.compile(r"[^=:\s]*tokens[\"']?\s*[:= ,]\s*[\"']?\d+[\"']?", re.IGNORECASE)


class Redactor:
    """Redacts texts; `secrets` are known by value."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spelled = {
            form
            for secret in secrets
            if len(secret) >= LEAST_LENGTH
            for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""))
        }
        self.known = sorted(spelled, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text without them."""
        for secret in self.known:
            text = text.replace(secret, REDACTED)
        for form in _FORMS:
            text = form.sub(REDACTED, text)
        return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    for pattern in _NAMED:
        line = pattern.sub(_replaced, line)
    return line


def _replaced(match: re.Match[str]) -> str:
    name, whole = match[1], match[0]
    if _HARMLESS.match(name.lstrip("-")) or _COUNT.fullmatch(whole):
        return whole
    quoted = name.rstrip().endswith(":") and whole.endswith('"')
    return f'{name}"{REDACTED}"' if quoted else f"{name}{REDACTED}"
