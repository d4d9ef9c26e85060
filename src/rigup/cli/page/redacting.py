"""Finds the secrets that a release was given, to take them out of what is drawn. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rigup.report.redaction import secrets_within


def secrets_of(manifest: dict[str, Any]) -> Iterator[str]:
    """What a release was given under a name that says that it is a secret: by environment or on its command line."""
    yield from secrets_within(manifest.get("environment") or {})
    yield from secrets_within(manifest.get("command") or [])
