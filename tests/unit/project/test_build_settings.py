"""Who builds for others: a host of the inventory, by name, or nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rigup.errors import InputError
from rigup.project.build_settings import check_builders, read_builder
from rigup.project.inventory import HostEntry, Project
from rigup.project.settings import read_settings
from rigup.settings import HostSettings


def project(root: Path, *names: str, **data: Any) -> Project:
    """A fleet of these hosts, of which --limit leaves the first."""
    hosts = tuple(HostEntry(name, "boxes", data, dict.fromkeys(data, "group_data/boxes.py")) for name in names)
    return Project(root, root / "inventories/home.py", hosts[:1], hosts)


def test_each_host_builds_for_itself_unless_a_builder_is_named(tmp_path: Path) -> None:
    assert read_settings({}, (), tmp_path).builder is None
    found = read_settings({"builder": "gpu1.lan"}, (), tmp_path).builder
    assert found is not None and found.name == found.folder.name == "gpu1.lan"


def test_the_controlling_machine_builds_for_every_fleet(tmp_path: Path) -> None:
    one, other = (read_builder({"builder": "controller"}, tmp_path / name) for name in ("a", "b"))
    assert one is not None and one == other
    check_builders(project(tmp_path, "gpu1", builder="controller"), {"gpu1": HostSettings(builder=one)})
    with pytest.raises(InputError) as caught:
        check_builders(
            project(tmp_path, "gpu1", "controller", builder="controller"), {"gpu1": HostSettings(builder=one)}
        )
    said = 'builder: "controller" is the controlling machine, and also a host of home.py'
    assert caught.value.message == f"group_data/boxes.py: {said}"


def test_another_fleet_with_a_host_of_that_name_has_records_of_its_own(tmp_path: Path) -> None:
    one, other = (read_builder({"builder": "gpu1"}, tmp_path / name) for name in ("a", "b"))
    assert one is not None and other is not None and one.folder != other.folder


@pytest.mark.parametrize("said", ["", "..", "../x", "/etc", "a/b", "a b", "a\nb", ".hidden", 1, ["gpu1"], "x" * 300])
def test_what_is_not_the_name_of_a_host_is_refused_with_the_file(tmp_path: Path, said: object) -> None:
    with pytest.raises(InputError) as caught:
        read_settings({"builder": said}, (), tmp_path, {"builder": "group_data/boxes.py"})
    assert caught.value.message.startswith("group_data/boxes.py: builder: ")
    assert caught.value.message.endswith(" is not the name of a host")


def test_a_builder_is_a_host_of_the_inventory_whatever_limit_says(tmp_path: Path) -> None:
    fleet = project(tmp_path, "gpu1", "gpu2", builder="gpu2")
    check_builders(fleet, {"gpu1": HostSettings(builder=read_builder({"builder": "gpu2"}, tmp_path))})
    with pytest.raises(InputError) as caught:
        check_builders(fleet, {"gpu1": HostSettings(builder=read_builder({"builder": "gpu3"}, tmp_path))})
    assert caught.value.message == 'group_data/boxes.py: builder: "gpu3" is not a host of home.py'
