"""Reading a fleet: pyinfra's precedence, and one exact message for whatever cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.errors import InputError
from rigup.project.inventory import load_project

RIG = 'rig = {"gpus": []}\nservices = {"chat": {"model": "m"}}\n'


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "inventories").mkdir()
    (tmp_path / "group_data").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(fleet: Path, inventory: str, **group_data: str) -> None:
    (fleet / "inventories/lab.py").write_text(inventory)
    for group, text in group_data.items():
        (fleet / f"group_data/{group}.py").write_text(text)


def test_a_host_gets_its_group_data_and_knows_where_it_came_from(fleet: Path) -> None:
    write(fleet, 'box = ["a.lan", ("b.lan", {"ssh_port": 2222})]', box=RIG)
    project = load_project(None)
    first, second = project.hosts
    assert (first.name, first.group, first.data_path) == ("a.lan", "box", "group_data/box.py")
    assert second.data["ssh_port"] == 2222
    assert second.origins["ssh_port"] == "inventories/lab.py"
    assert project.root == fleet


def test_the_more_particular_value_wins(fleet: Path) -> None:
    write(
        fleet,
        'box = (["a.lan", ("b.lan", {"hub": "host"})], {"hub": "inline"})\nother = ["c.lan", "d.lan"]',
        all=RIG + 'hub = "all"',
        lab='hub = "file"',
        box='hub = "group"',
    )
    hubs = {host.name: host.data["hub"] for host in load_project(None).hosts}
    assert hubs == {"a.lan": "inline", "b.lan": "host", "c.lan": "file", "d.lan": "file"}


@pytest.mark.parametrize("hosts", [("a.lan",), ("a.lan", "b.lan"), ("a.lan", ("b.lan", {"ssh_port": 2222}))])
def test_a_group_may_be_a_tuple_of_hosts(fleet: Path, hosts: tuple[object, ...]) -> None:
    write(fleet, f"box = {hosts!r}", box=RIG)
    assert [host.name for host in load_project(None).hosts] == ["a.lan", "b.lan"][: len(hosts)]


def test_limit_takes_groups_hosts_and_patterns(fleet: Path) -> None:
    write(fleet, 'x = ["a1", "a2"]\ny = ["b1"]', all=RIG)
    names = lambda limit: [host.name for host in load_project(None, limit).hosts]  # noqa: E731
    assert names("x") == ["a1", "a2"]
    assert names("b1,a2") == ["a2", "b1"]
    assert names("a*") == ["a1", "a2"]


def test_an_inventory_below_a_fleet_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "inventory.py").write_text('lab = ["lab1"]')
    (tmp_path / "group_data/lab.py").write_text(RIG)
    assert load_project(str(tmp_path / "inventory.py")).root == tmp_path


SYNTAX = "fix the syntax error: inventory files are Python"
BAD = [
    ("no_such.py", {}, "no_such.py: inventory does not exist", "choose from: none"),
    (None, {}, "inventories/: no inventory found", "describe the first host: rigup init USER@HOST"),
    (
        None,
        {"inventories/a.py": "", "inventories/b.py": ""},
        "inventories/: more than one inventory (inventories/a.py, inventories/b.py)",
        "name one: rigup plan INVENTORY",
    ),
    (
        None,
        {"inventories/a.py": 'box = [\n  "a",,\n]'},
        "inventories/a.py:2: invalid syntax",
        SYNTAX,
    ),
    (
        None,
        {"inventories/a.py": "import os\nbox = [os.environ['NO_SUCH_VARIABLE']]"},
        "inventories/a.py:2: KeyError: 'NO_SUCH_VARIABLE'",
        "fix the error: the file is executed as Python",
    ),
    (
        None,
        {"inventories/a.py": "box = []"},
        "inventories/a.py: it has no hosts",
        'write a group, e.g. quad_3090 = ["gpu1.lan"]',
    ),
    (
        None,
        {"inventories/a.py": "box = ['a', 7]"},
        "inventories/a.py: box[1]: 7 is not a host",
        'write a host as "name" or ("name", {"ssh_port": 2222})',
    ),
    (
        None,
        {"inventories/a.py": "box = ['a']"},
        'inventories/a.py: group "box" has no rig',
        'write group_data/box.py with rig = {"gpus": "4x RTX 3090"} and services = {...}',
    ),
    (
        None,
        {"inventories/a.py": "box = ['a']", "group_data/box.py": "rig = {\n'gpus': [}"},
        "group_data/box.py:2: closing parenthesis '}' does not match opening parenthesis '['",
        SYNTAX,
    ),
]


@pytest.mark.parametrize(("path", "files", "message", "hint"), BAD, ids=[row[2] for row in BAD])
def test_bad_fleets(fleet: Path, path: str | None, files: dict[str, str], message: str, hint: str) -> None:
    for name, text in files.items():
        (fleet / name).write_text(text)
    with pytest.raises(InputError) as caught:
        load_project(path)
    assert (caught.value.message, caught.value.hint, caught.value.exit_code) == (message, hint, 2)


def test_a_limit_that_names_nothing(fleet: Path) -> None:
    write(fleet, 'x = ["a1"]\ny = ["b1"]', all=RIG)
    with pytest.raises(InputError) as caught:
        load_project(None, "zz")
    assert caught.value.message == '--limit: "zz" is neither a group nor a host'
    assert caught.value.hint == "name a host, or one of the groups: x, y"
