"""A host comes into a fleet's files, and what a person wrote there stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.errors import InputError, Refused
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.project.inventory import load_project
from rigup.project.inventory_edit import (
    check_new,
    entry_of,
    equal_rigs,
    group_for,
    join_group,
    members,
    new_folder,
    new_group,
)
from rigup.rig import Rig

DATA = 'rig = {"gpus": "2x RTX 3090", "host_memory_gib": 62, "os": "debian-12"}\nservices = {}\n'


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


def rig(catalogue: Catalogue, gpus: str = "2x RTX 3090", memory: float = 62, os: str = "debian-12") -> Rig:
    return read_rig({"gpus": gpus, "host_memory_gib": memory, "os": os}, "test", catalogue)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "inventories").mkdir()
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data/pairs.py").write_text(DATA)
    return tmp_path


def write(root: Path, text: str, name: str = "home") -> Path:
    path = root / f"inventories/{name}.py"
    path.write_text(text)
    return path


def test_the_first_host_of_a_fleet(tmp_path: Path) -> None:
    for change in new_group(tmp_path, "pairs", entry_of("ada@one", {}), DATA):
        change.write()
    (host,) = load_project(str(tmp_path / "inventories/pairs.py")).hosts
    assert (host.name, host.group) == ("ada@one", "pairs")
    assert [path.name for path in sorted((tmp_path / "inventories").iterdir())] == ["pairs.py"]


def test_a_new_group_goes_to_the_end_of_the_only_inventory(root: Path) -> None:
    inventory = write(root, '# mine\npairs = ["one"]  # the old one')
    for change in new_group(root, "quads", '"two"', DATA):
        change.write()
    assert inventory.read_text() == '# mine\npairs = ["one"]  # the old one\nquads = ["two"]\n'
    assert [host.group for host in load_project(str(inventory)).hosts] == ["pairs", "quads"]


def test_files_that_are_there_are_never_overwritten(root: Path) -> None:
    with pytest.raises(Refused) as refused:
        new_group(root, "pairs", '"two"', DATA)
    assert refused.value.message.endswith("group_data/pairs.py already exists")
    assert "pairs = [" in (refused.value.hint or "")
    assert (root / "group_data/pairs.py").read_text() == DATA
    write(root, "quads = make()")
    (root / "inventories/home.py").write_text("def make():\n    return ['x']\nquads = make()\n")
    with pytest.raises(Refused, match="quads already exists"):
        new_group(root, "quads", '"two"', DATA)


def test_a_group_that_cannot_be_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='--group: "my-rigs" is not a valid group name'):
        new_group(tmp_path, "my-rigs", '"two"', DATA)


JOINED = [
    ('pairs = ["one"]\n', 'pairs = ["one", "two"]\n'),
    ('pairs = ["one",]  # mine\n', 'pairs = ["one", "two",]  # mine\n'),
    ('pairs = [\n    "one",  # mine\n]\n', 'pairs = [\n    "one",  # mine\n    "two",\n]\n'),
    ('pairs = [\n    "one"  # mine\n]\n', 'pairs = [\n    "one",  # mine\n    "two",\n]\n'),
    ('pairs = [\n    "one"]\n', 'pairs = [\n    "one", "two"]\n'),
    ('pairs = [("one", {"ssh_port": 2222})]\n', 'pairs = [("one", {"ssh_port": 2222}), "two"]\n'),
    ('pairs = (["one"], {"hub": "http://ü"})\n', 'pairs = (["one", "two"], {"hub": "http://ü"})\n'),
]


@pytest.mark.parametrize(("before", "after"), JOINED)
def test_one_host_more(root: Path, before: str, after: str) -> None:
    write(root, before)
    change = join_group(members(root)[0], '"two"')
    assert change.text == after
    change.write()
    assert [host.name for host in load_project(str(change.path)).hosts] == ["one", "two"]


@pytest.mark.parametrize("text", ['pairs = ["one"] + []\n', 'pairs = [f"{n}" for n in ["one"]]\n'])
def test_a_list_that_is_worked_out_is_left_alone(root: Path, text: str) -> None:
    path = write(root, text)
    with pytest.raises(Refused) as refused:
        join_group(members(root)[0], '"two"')
    assert refused.value.hint == 'add it yourself: "two"'
    assert path.read_text() == text


def test_a_host_that_is_there_already(root: Path) -> None:
    write(root, 'pairs = ["ada@one"]\n')
    for name in ("ada@one", "one", "root@one"):
        with pytest.raises(InputError, match="ada@one is already in group pairs"):
            check_new(name, members(root))
    check_new("two", members(root))


def test_the_group_with_an_equal_rig(root: Path, catalogue: Catalogue) -> None:
    write(root, 'pairs = ["one"]\n')
    there = members(root)
    found = group_for(rig(catalogue), None, there, catalogue)
    assert found is not None and found.entry.group == "pairs"
    assert group_for(rig(catalogue), "pairs", there, catalogue) is not None
    assert group_for(rig(catalogue), "others", there, catalogue) is None
    assert group_for(rig(catalogue, "4x RTX 3090"), None, there, catalogue) is None
    with pytest.raises(Refused) as refused:
        group_for(rig(catalogue, "4x RTX 3090"), "pairs", there, catalogue)
    assert "declared: 2x NVIDIA GeForce RTX 3090, 62 GiB host memory, debian-12; found: 4x" in refused.value.message


def test_a_group_whose_services_span_hosts_is_joined_only_where_it_is_named(root: Path, catalogue: Catalogue) -> None:
    (root / "group_data/sets.py").write_text(DATA.replace('"gpus"', '"hosts_per_service": 2, "gpus"'))
    write(root, 'sets = ["one", "two"]\n')
    there = members(root)
    assert group_for(rig(catalogue), None, there, catalogue) is None
    named = group_for(rig(catalogue), "sets", there, catalogue)
    assert named is not None and named.entry.group == "sets"
    write(root, 'sets = ["one", "two"]\npairs = ["three"]\n')
    other = group_for(rig(catalogue), None, members(root), catalogue)
    assert other is not None and other.entry.group == "pairs"


@pytest.mark.parametrize("path", ['/home/a"b/cfg', "/home/a\\b/cfg", "/home/\U0001f600/cfg"])
def test_what_an_entry_says_is_what_is_read(tmp_path: Path, path: str) -> None:
    for change in new_group(tmp_path, "pairs", entry_of("ada@one", {"ssh_config_file": path}), DATA):
        change.write()
    (host,) = load_project(str(tmp_path / "inventories/pairs.py")).hosts
    assert (host.name, host.data["ssh_config_file"]) == ("ada@one", path)


def test_rigs_that_are_one(catalogue: Catalogue) -> None:
    one = rig(catalogue)
    assert equal_rigs(one, rig(catalogue, memory=63))
    assert not equal_rigs(one, rig(catalogue, memory=31))
    assert not equal_rigs(one, rig(catalogue, os="debian-13"))
    assert equal_rigs(one.model_copy(update={"os": None, "host_memory_gib": None}), one)


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "group_data").write_text("a file")
    with pytest.raises(InputError, match=r"group_data/pairs\.py"):
        new_group(tmp_path, "pairs", '"two"', DATA)[0].write()


def test_a_new_folder_keeps_secrets_out_of_git_and_a_file_of_the_users_stays(tmp_path: Path) -> None:
    (change,) = new_folder(tmp_path)
    change.write()
    assert "secrets/" in (tmp_path / ".gitignore").read_text().splitlines()
    assert new_folder(tmp_path) == []
    (tmp_path / ".gitignore").unlink()
    (tmp_path / "inventories").mkdir()
    assert new_folder(tmp_path) == []
