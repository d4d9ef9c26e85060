"""Who builds for others: a host of the inventory, by name, or nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rigup.errors import InputError
from rigup.project.build_settings import check_builders, read_builders
from rigup.project.inventory import HostEntry, Project
from rigup.project.settings import read_settings, settings_by_host
from rigup.settings import HostSettings


def project(root: Path, *names: str, **data: Any) -> Project:
    """A fleet of these hosts, of which --limit leaves the first."""
    hosts = tuple(HostEntry(name, "boxes", data, dict.fromkeys(data, "group_data/boxes.py")) for name in names)
    return Project(root, root / "inventories/home.py", hosts[:1], hosts)


def test_each_host_builds_for_itself_unless_a_builder_is_named(tmp_path: Path) -> None:
    assert read_settings({}, (), tmp_path).builders == ()
    for said in (["gpu1.lan"], ["gpu1.lan", "gpu2.lan"]):
        found = read_settings({"builder": said}, (), tmp_path).builders
        assert [one.name for one in found] == [one.folder.name for one in found] == said
        assert len({one.folder for one in found}) == len(said)
    assert read_settings({"builder": "gpu1.lan"}, (), tmp_path).builders == found[:1]


def test_the_controlling_machine_builds_for_every_fleet(tmp_path: Path) -> None:
    one, other = (read_builders("controller", tmp_path / name, {}) for name in ("a", "b"))
    assert one == other
    check_builders(project(tmp_path, "gpu1", builder="controller"), {"gpu1": HostSettings(builders=one)})
    with pytest.raises(InputError) as caught:
        check_builders(
            project(tmp_path, "gpu1", "controller", builder="controller"), {"gpu1": HostSettings(builders=one)}
        )
    said = 'builder: "controller" is the controlling machine, and also a host of home.py'
    assert caught.value.message == f"group_data/boxes.py: {said}"


def folder_of(root: Path, **data: Any) -> Path:
    """Where a fleet at `root`, whose builder has this data, keeps the builder's records."""
    everyone = (HostEntry("other", "boxes", {"builder": "gpu1"}), HostEntry("gpu1", "boxes", data))
    fleet = Project(root, root / "inventories/home.py", everyone[:1], everyone)
    (found,) = settings_by_host(fleet, {"other": ()})["other"].builders
    return found.folder


def test_every_checkout_of_a_fleet_finds_the_records_of_a_builder(tmp_path: Path) -> None:
    for data in (
        {},
        {"ssh_config_file": "/lab/ssh_config"},
        {"ssh_port": 22, "ssh_key": "~/.ssh/id", "hub": "http://x"},
    ):
        assert folder_of(tmp_path / "a", **data) == folder_of(tmp_path / "b", **{**data, "ssh_key": None})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"ssh_hostname": "10.0.0.1"}, {"ssh_hostname": "10.0.0.2"}),
        ({"ssh_hostname": "10.0.0.1"}, {}),
        ({"ssh_port": 22}, {"ssh_port": 2222}),
        ({"ssh_strict_host_key_checking": "no"}, {}),
        ({"ssh_config_file": "ssh_config"}, {"ssh_config_file": "ssh_config"}),
    ],
)
def test_another_machine_of_that_name_has_records_of_its_own(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert folder_of(tmp_path / "a", **one) != folder_of(tmp_path / "b", **other)


@pytest.mark.parametrize(
    "said", ["", "..", "../x", "/etc", "a/b", "a b", "a\nb", ".hidden", 1, [], [["gpu1"]], ["a b"], "x" * 300]
)
def test_what_is_not_the_name_of_a_host_is_refused_with_the_file(tmp_path: Path, said: object) -> None:
    with pytest.raises(InputError) as caught:
        read_settings({"builder": said}, (), tmp_path, {"builder": "group_data/boxes.py"})
    assert caught.value.message.startswith("group_data/boxes.py: builder: ")
    assert caught.value.message.endswith(" is not the name of a host")


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        (["gpu1", "gpu1"], "builder: it names gpu1 more than once", "remove one of them"),
        (
            ["gpu1", "controller"],
            'builder: "controller" beside hosts',
            'write builder = "controller", or hosts alone',
        ),
    ],
)
def test_a_list_of_builders_has_hosts_and_each_once(tmp_path: Path, said: object, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read_settings({"builder": said}, (), tmp_path)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_builder_is_a_host_of_the_inventory_whatever_limit_says(tmp_path: Path) -> None:
    fleet = project(tmp_path, "gpu1", "gpu2", builder="gpu2")
    check_builders(fleet, {"gpu1": HostSettings(builders=read_builders("gpu2", tmp_path, {}))})
    with pytest.raises(InputError) as caught:
        check_builders(fleet, {"gpu1": HostSettings(builders=read_builders(["gpu2", "gpu3"], tmp_path, {}))})
    assert caught.value.message == 'group_data/boxes.py: builder: "gpu3" is not a host of home.py'
