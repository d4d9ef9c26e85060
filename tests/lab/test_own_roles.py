"""A fleet with roles of its own on a booted machine: before and after rigup's, and nothing more on a second apply."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.lab.fleet import Fleet

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run")]

EXAMPLES = Path(__file__).parents[2] / "files/example_roles"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFWVAyN+WzSE0TLTcT9vK8C9IRrv0p2hSkYzVbHjYt0k ada@desk"


def test_a_role_makes_an_account_and_a_second_apply_changes_nothing(fleet: Fleet) -> None:
    fleet.describe()
    with (fleet.root / "group_data/boxes.py").open("a") as file:
        file.write(f'people = {{"ada": [{KEY!r}]}}\n')
    (fleet.root / "roles").unlink(missing_ok=True)  # a link of tests that run plain pyinfra
    (fleet.root / "roles").mkdir()
    shutil.copy(EXAMPLES / "people.py", fleet.root / "roles")
    try:
        first = fleet.apply().json["hosts"][0]
        assert first["changes"][0] == {"role": "people", "step": "account of ada"}
        assert fleet.host.tell("cat ~ada/.ssh/authorized_keys") == KEY
        assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
        fleet.host.tell("echo more >> ~ada/.ssh/authorized_keys")
        pending = fleet.rigup("diff", "--json", expect=1).json["hosts"][0]["changes"]
        assert pending == [{"role": "people", "step": "account of ada"}]
    finally:
        shutil.rmtree(fleet.root / "roles")
        fleet.host.tell("userdel -r ada")
