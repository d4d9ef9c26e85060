"""Finds the secrets in a release, to redact them from the page. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rigup.report.redaction import secrets_within


def secrets_of(manifest: dict[str, Any]) -> Iterator[str]:
    """The secrets of a release, by their names in its environment and on its command line."""
    yield from secrets_within(manifest.get("environment") or {})
    yield from secrets_within(manifest.get("command") or [])
