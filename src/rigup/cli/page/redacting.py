"""Takes secrets out of values before they are drawn, and finds those that a release was given. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rigup.fleet.redaction import Redactor, secrets_within


def redacted(value: Any, redactor: Redactor) -> Any:
    """The same value without secrets: see `Redactor.value`."""
    return redactor.value(value)


def secrets_of(manifest: dict[str, Any]) -> Iterator[str]:
    """What a release was given under a name that says that it is a secret: by environment or on its command line."""
    yield from secrets_within(manifest.get("environment") or {})
    yield from secrets_within(manifest.get("command") or [])
