"""Takes secrets out of values before they are drawn: a redactor's work, done on each text by itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

from rigup.fleet.redaction import REDACTED, Redactor

SECRET_NAME = re.compile(r"passw|secret|token$|api_?key$|credential", re.IGNORECASE)


def redacted(value: Any, redactor: Redactor) -> Any:
    """The same value without secrets: frozen dataclasses, mappings, lists and tuples, each text within.

    A text under a key that names a secret, and the word after an option that does, goes whatever it is.
    """
    # the same few texts stand in a fleet's values again and again
    return _walk(value, cache(redactor.text))


def _walk(value: Any, text: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return text(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _walk(getattr(value, field.name), text) for field in fields(value)})
    if isinstance(value, dict):
        return {
            text(str(key)): REDACTED if _is_secret(str(key), kept) else _walk(kept, text) for key, kept in value.items()
        }
    if isinstance(value, (list, tuple)):
        words = [_walk(kept, text) for kept in value]
        for index, (before, word) in enumerate(pairwise(value)):
            if isinstance(before, str) and before.startswith("--") and _is_secret(before, word):
                words[index + 1] = REDACTED
        return type(value)(words)
    return value


def secrets_of(manifest: dict[str, Any]) -> Iterator[str]:
    """What a release was given under a name that says that it is a secret: by environment or on its command line."""
    for name, value in (manifest.get("environment") or {}).items():
        if _is_secret(str(name), value):
            yield value
    words = manifest.get("command") or []
    for before, word in pairwise(words):
        if str(before).startswith("--") and _is_secret(str(before), word):
            yield word


def _is_secret(name: str, value: Any) -> bool:
    """Whether a value is one by its name: a text that is more than a number."""
    is_text = isinstance(value, str) and bool(value) and not value.replace(".", "").isdigit()
    return is_text and bool(SECRET_NAME.search(name.replace("-", "_")))
