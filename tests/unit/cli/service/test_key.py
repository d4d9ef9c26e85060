"""`rigup key`: what may be named, and a key in a file of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import CommandLine

OWN_KEY = """\
rig = {"gpus": []}
services = {"chat": {"model": "SmolLM2-135M-Instruct", "listen": "0.0.0.0", "api_key_file": "chat.key"}}
"""


@pytest.mark.parametrize("words", [("show", "chta"), ("rotate", "chta", "--yes")])
def test_a_service_that_the_inventory_does_not_have(words: tuple[str, ...], tmp_path: Path) -> None:
    rigup = CommandLine(tmp_path)
    rigup.describe(["a"])
    done = rigup.call("key", *words, "--json")
    assert (done.code, done.errors) == (2, [('no service "chta" in the inventory', "choose from: chat")])


def test_a_key_of_the_users_own_is_replaced_in_its_file(tmp_path: Path) -> None:
    rigup = CommandLine(tmp_path)
    rigup.describe(["a"], OWN_KEY)
    rigup.write("chat.key", "earlier\n")
    (rigup.fleet / "chat.key").chmod(0o600)
    asked = rigup.call("key", "rotate", "chat")
    assert (asked.code, (rigup.fleet / "chat.key").read_text()) == (2, "earlier\n")
    assert "key rotate needs confirmation" in asked.err
    done = rigup.call("key", "rotate", "chat", "--yes", "--json")
    assert (done.code, done.json["file"], done.json["hosts"]) == (0, "chat.key", [])
    new = (rigup.fleet / "chat.key").read_text().strip()
    assert len(new) >= 40 and new not in done.text
    shown = rigup.call("key", "rotate", "chat", "--yes")
    assert shown.out == "chat.key: new key; to install it on hosts and gateways: rigup apply\n"
