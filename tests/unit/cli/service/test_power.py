"""`rigup stop`, `start`, `restart`: what may be named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import CommandLine


@pytest.mark.parametrize("verb", ["stop", "start", "restart"])
def test_a_service_that_the_inventory_does_not_have(verb: str, tmp_path: Path) -> None:
    rigup = CommandLine(tmp_path)
    rigup.describe(["a"])
    done = rigup.call(verb, "chta", "--json")
    assert (done.code, done.json["error"]) == (
        2,
        {"message": 'no service "chta" in the inventory', "hint": "choose from: chat"},
    )


def test_a_value_of_enabled_that_is_not_one(tmp_path: Path) -> None:
    rigup = CommandLine(tmp_path)
    rigup.describe(
        ["a"], 'rig = {"gpus": []}\nservices = {"chat": {"model": "SmolLM2-135M-Instruct", "enabled": "no way"}}\n'
    )
    done = rigup.call("plan", "--json")
    assert done.code == 2
    assert done.json["error"]["message"].startswith("group_data/boxes.py: services.chat.enabled: ")


def test_a_disabled_service_is_not_planned_and_gives_its_port_away(tmp_path: Path) -> None:
    rigup = CommandLine(tmp_path)
    model = '"model": "SmolLM2-135M-Instruct"'
    services = f'{{"chat": {{{model}, "enabled": False}}, "other": {{{model}}}}}'
    rigup.describe(["a"], f'rig = {{"gpus": []}}\nservices = {services}\n')
    done = rigup.call("plan", "--json")
    assert [
        plan["service"]["name"] if isinstance(plan["service"], dict) else plan["service"] for plan in done.json["hosts"]
    ] == ["other"]
    assert done.json["disabled"] == [{"host": "a", "service": "chat"}]
    shown = rigup.call("plan").out
    assert "a: chat: stays stopped (enabled = False)" in shown
    assert "1 service planned, none refused" in shown
