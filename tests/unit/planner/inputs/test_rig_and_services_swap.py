"""Services that take turns: the exact message for each thing that they do not have in common."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.errors import InputError
from rigup.planner.inputs.rig_and_services import read_services
from tests.unit.planner.inputs.texts import KIND, SWITCH

FILE = "group_data/box.py"
TURN: dict[str, Any] = {"model": "MiniMax-M2.5", "swap": True}
ALONE = 'write "swap": True in another service, too, or leave it out'
BAD: dict[str, tuple[dict[str, dict[str, Any]], str, str]] = {
    "alone": ({"a": TURN}, "services.a.swap: no other service takes turns with it", ALONE),
    "alone beside others": (
        {"a": {"model": "MiniMax-M2.5"}, "b": {**TURN, "port": 8001}},
        "services.b.swap: no other service takes turns with it",
        ALONE,
    ),
    "in words": (
        {"a": {**TURN, "swap": "yes"}},
        f'services.a.swap: {SWITCH}, not "yes"',
        KIND,
    ),
    "another port": (
        {"a": TURN, "b": {**TURN, "port": 8001}},
        "services.b.port: 8001 differs from the 8000 of a, with which it takes turns",
        "give both the same port",
    ),
    "another address": (
        {"a": TURN, "b": {**TURN, "listen": "0.0.0.0"}},
        'services.b.listen: "0.0.0.0" differs from the "127.0.0.1" of a, with which it takes turns',
        "give both the same listen",
    ),
    "another key": (
        {"a": TURN, "b": {**TURN, "api_key_file": "secrets/b.key"}},
        'services.b.api_key_file: "secrets/b.key" differs from the default of a, with which it takes turns',
        "give both the same api_key_file",
    ),
    "other cards": (
        {"a": {**TURN, "gpus": [0, 1]}, "b": {**TURN, "gpus": [2, 3]}},
        "services.b.gpus: [2, 3] differs from the [0, 1] of a, with which it takes turns",
        "give both the same gpus",
    ),
    "cards of one only": (
        {"a": {**TURN, "gpus": [0, 1]}, "b": TURN},
        "services.b.gpus: default differs from the [0, 1] of a, with which it takes turns",
        "give both the same gpus",
    ),
    "another release": (
        {"a": {**TURN, "version": "b11434"}, "b": TURN},
        'services.b.version: default differs from the "b11434" of a, with which it takes turns',
        "give both the same version",
    ),
    "a build that was compiled in another way": (
        {"a": TURN, "b": {**TURN, "quick_build": True}},
        "services.b.quick_build: True differs from the False of a, with which it takes turns",
        "give both the same quick_build",
    ),
    "another build": (
        {"a": TURN, "b": {**TURN, "build": "source"}},
        'services.b.build: "source" differs from the default of a, with which it takes turns',
        "give both the same build",
    ),
    "another wait": (
        {"a": TURN, "b": {**TURN, "drain_timeout": 5}},
        "services.b.drain_timeout: 5 differs from the 120 of a, with which it takes turns",
        "give both the same drain_timeout",
    ),
    "another environment": (
        {"a": TURN, "b": {**TURN, "environment": {"X": "1"}}},
        "services.b.environment: {'X': '1'} differs from the {} of a, with which it takes turns",
        "give both the same environment",
    ),
    "the port of one that takes no turns": (
        {"a": TURN, "b": TURN, "c": {"model": "MiniMax-M2.5"}},
        "services.c.port: 8000 is taken by b",
        "give each service of a host its own port",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_takes_no_turns(case: str) -> None:
    services, message, hint = BAD[case]
    with pytest.raises(InputError) as caught:
        read_services(services, FILE)
    assert (caught.value.message, caught.value.hint) == (f"{FILE}: {message}", hint)


def test_one_may_be_disabled() -> None:
    read = read_services({"a": TURN, "b": {**TURN, "enabled": False}}, FILE)
    assert [service.swap for service in read] == [True, True]
