"""Reads release.json, the manifest of a release on a host: what the release was made from. Pure."""

import ipaddress
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from rigup.facts.bounds import count, json_of, shown
from rigup.facts.host_output import MOST_GPUS, HostOutput, Line, checked
from rigup.node import Node

_MOST_NODES, _MOST_MEMBERS = 256, 256


def listening(command: Sequence[str]) -> tuple[str, int]:
    """Where the command line of an engine has its API listen: address and port. Raises ValueError if it cannot."""
    given = dict(pairwise(command))
    address, port = given.get("--host", "127.0.0.1"), given.get("--port", "8000")
    try:
        if address != "localhost":
            ipaddress.ip_address(address)
    except ValueError:
        raise ValueError(f'--host: "{shown(address)}" is not an IP address') from None
    try:
        number = count(port, 65_535)
    except ValueError:
        number = 0
    if not number:
        raise ValueError(f'--port: "{shown(port)}" is not a port')
    return address, number


def _that_listens(command: list[str]) -> list[str]:
    listening(command)
    return command


class _CheckpointRecord(HostOutput):
    repo: Line
    quant: Line = ""
    revision: Line | None = None
    place: Line = ""


_Gpu = Annotated[tuple[Annotated[int, Field(ge=0, lt=MOST_GPUS, strict=True)], Line], Field(strict=False)]


class _GroupRecord(HostOutput):
    id: Line
    nodes: Annotated[list[Node], Field(max_length=_MOST_NODES)]


class _LoadedRecord(HostOutput):
    checkpoint: _CheckpointRecord | None = None
    draft: _CheckpointRecord | None = None


class _AnsweringRecord(_LoadedRecord):
    expected_answer: Annotated[str, Field(max_length=100)] | None = None


class _MemberRecord(_AnsweringRecord):
    model: Line


class _ManifestRecord(_AnsweringRecord):
    build: Line | None = None
    members: Annotated[dict[Line, _MemberRecord], Field(max_length=_MOST_MEMBERS)] | None = None
    command: Annotated[list[str], Field(max_length=2000), AfterValidator(_that_listens)] | None = None
    environment: dict[str, str] | None = None
    gpus: Annotated[list[_Gpu], Field(max_length=MOST_GPUS)] | None = None
    set: _GroupRecord | None = None


def read_manifest(text: str, path: str) -> dict[str, Any]:
    """The manifest as written, after a type check of the keys that rigup reads. Raises Unreadable.

    `build` is a string, `checkpoint` and `draft` objects with `repo`, `quant` and `revision`, `members` an object of
    objects with `model` and those two, `command` a list of strings, in which --host and --port have valid values,
    `environment` an object of strings, `gpus` a list of pairs of index and UUID, `set` an object with `id` and `nodes`,
    `expected_answer` a string or null, here and in `members`. path: the file's path, for messages.
    """
    value = json_of(text, path)
    checked(_ManifestRecord, value, path)
    found: dict[str, Any] = value
    for loaded in (found, *(found.get("members") or {}).values()):
        for key in ("checkpoint", "draft"):
            if checkpoint := loaded.get(key):
                loaded[key] = {"quant": "", "revision": None, **checkpoint}
    return found


def checkpoints_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Every checkpoint that a release loads: those of a swap group, or what it serves and what drafts tokens for it."""
    loaded = (manifest.get("members") or {"": manifest}).values()
    return [one[key] for one in loaded for key in ("checkpoint", "draft") if one.get(key)]
