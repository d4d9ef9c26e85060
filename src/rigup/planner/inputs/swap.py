"""Services that take turns (`swap`): what they must have in common, because one process serves all of them."""

from __future__ import annotations

from collections.abc import Iterable

from rigup.errors import InputError
from rigup.plain_values import quoted
from rigup.service import Service

IN_COMMON = (
    "listen",
    "port",
    "api_key_file",
    "gpus",
    "version",
    "build",
    "quick_build",
    "drain_timeout",
    "environment",
)


def check_swap(services: Iterable[Service], path: str) -> None:
    """Raises InputError, whose message begins with `<path>: services.<name>.<key>`, for what takes no turns."""
    group = [service for service in services if service.swap]
    if len(group) == 1:
        raise InputError(
            f"{path}: services.{group[0].name}.swap: no other service takes turns with it",
            'write "swap": True in another service, too, or leave it out',
        )
    for service in group[1:]:
        first = group[0]
        for key in IN_COMMON:
            mine, theirs = getattr(service, key), getattr(first, key)
            if mine != theirs:
                raise InputError(
                    f"{path}: services.{service.name}.{key}: {_said(mine)} differs from the {_said(theirs)} of "
                    f"{first.name}, with which it takes turns",
                    f"give both the same {key}",
                )


def _said(value: object) -> str:
    return "default" if value is None else quoted(list(value) if isinstance(value, tuple) else value)
