"""What `Lab.up` keeps, repairs, refuses and takes back, and what it does about this machine's limits."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from rigup.cli.main import main
from rigup.errors import HostFailed, InputError, MissingTool
from rigup.lab import prerequisites
from rigup.lab.folder import LabFolder
from rigup.lab.lab import Lab, take_down
from rigup.lab.machine import Machine
from rigup.lab.network.network import Cable, keep_cable
from tests.unit.lab.stubbed_lab import KEY, Stubbed, stub_labs


@pytest.mark.parametrize(("limit", "after", "said"), [(128, 300, 1), (300, 300, 0), (1024, 1024, 0)])
def test_room_is_made_where_there_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, after: int, said: int
) -> None:
    path = tmp_path / "max_user_instances"
    path.write_text(f"{limit}\n")
    monkeypatch.setattr(prerequisites, "INSTANCES", path)
    lines: list[str] = []
    prerequisites.make_room(20, lines.append)
    assert int(path.read_text()) == after
    assert lines == ["raised fs.inotify.max_user_instances from 128 to 300 for 20 machines"][:said]


def test_room_that_cannot_be_made_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    class ReadOnly:
        def read_text(self) -> str:
            return "128\n"

        def write_text(self, text: str) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(prerequisites, "INSTANCES", ReadOnly())
    with pytest.raises(MissingTool) as raised:
        prerequisites.make_room(3, print)
    assert raised.value.message == (
        "3 machines require fs.inotify.max_user_instances = 130, but it is 128: Read-only file system"
    )
    assert raised.value.hint == "run sysctl -w fs.inotify.max_user_instances=130 on the machine that runs the lab"


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stubbed:
    return stub_labs(monkeypatch, tmp_path)


def fails(machine: Machine) -> None:
    if machine.index == 2:
        raise HostFailed("b2: did not boot")


def test_a_lab_that_did_not_come_up_ends(there: Stubbed) -> None:
    there.boot = fails
    with pytest.raises(HostFailed, match="b2: did not boot"):
        Lab.up("b", hosts=3)
    assert (there.running, there.networks, sorted(there.dismantled)) == (set(), {}, [(1, 1), (1, 2), (1, 3)])


def test_machines_that_were_to_be_added_end_and_the_others_stay(there: Stubbed) -> None:
    before = Lab.up("b")
    running, config = set(there.running), before.folder.ssh_config.read_text()
    there.boot = fails
    with pytest.raises(HostFailed, match="b2: did not boot"):
        Lab.up("b", hosts=3)
    assert (there.running, there.dismantled) == (running, [(1, 2), (1, 3)])
    assert LabFolder("b").record() == before.record
    assert before.folder.ssh_config.read_text() == config


def test_what_is_refused_changes_nothing(there: Stubbed) -> None:
    before = Lab.up("b").record
    with pytest.raises(InputError, match=r"^--rig: lab b is running with no GPUs$"):
        Lab.up("b", hosts=5, rig="RTX 3090")
    with pytest.raises(
        InputError, match=r"^lab b is running with --suite bookworm --disk 4g, not --suite bookworm --disk 1g$"
    ):
        Lab.up("b", hosts=5, disk="1g")
    assert LabFolder("b").record() == before
    assert there.dismantled == []


def test_a_lab_with_gpus_grows_with_them_and_what_its_user_wrote_stays(there: Stubbed) -> None:
    folder = Lab.up("g", rig="4x RTX 3090").folder
    data = folder.path / "group_data" / "g.py"
    assert data.read_text().startswith('rig = {"gpus": "4x RTX 3090"}\n')
    assert f'{KEY} = "{"F" * 40}"' in data.read_text()
    data.write_text("# mine\n")
    Lab.up("g", hosts=2, rig="4x RTX 3090")
    Lab.up("g", hosts=3)
    assert data.read_text() == "# mine\n"
    for index in (2, 3):
        assert "gpu3.name NVIDIA GeForce RTX 3090" in (folder.machine(index) / "rig").read_text()
    with pytest.raises(InputError, match=r"^--rig: lab g is running with other GPUs$"):
        Lab.up("g", rig="2x RTX 3090")


def test_a_lab_with_gpus_gets_its_repository_again(there: Stubbed) -> None:
    folder = Lab.up("g", rig="4x RTX 3090").folder
    repository = folder.path / "nvidia_repository.pid"
    there.running.remove(repository)
    Lab.up("g")
    assert repository in there.running


def test_a_lab_made_again_after_a_restart_keeps_its_gpus_until_others_are_asked_for(there: Stubbed) -> None:
    folder = Lab.up("g", rig="4x RTX 3090").folder
    data = folder.path / "group_data" / "g.py"
    data.write_text("# mine\n")
    there.restart()
    assert Lab.up("g").record.rig == {"gpus": "4x RTX 3090"}
    assert folder.path / "nvidia_repository.pid" in there.running
    assert data.read_text() == "# mine\n"
    there.restart()
    assert Lab.up("g", rig="RTX 3090, 2x RTX 4090").record.rig == {"gpus": ["RTX 3090", "2x RTX 4090"]}
    assert data.read_text().startswith('rig = {"gpus": ["RTX 3090", "2x RTX 4090"]}\n')
    assert "gpus 3\n" in (folder.machine(1) / "rig").read_text()


def test_a_machine_whose_cable_is_cut_is_not_waited_for(there: Stubbed) -> None:
    machine = Lab.up("b").machines[0]
    keep_cable(machine.folder, Cable(plugged=False))
    waited: list[int] = []
    there.boot = lambda machine: waited.append(machine.index)
    said: list[str] = []
    Lab.up("b", hosts=2, log=said.append)
    assert waited == [2]
    assert said == ["not waiting for b1: its cable is cut", "b2 answers SSH at 127.77.1.12"]


def test_a_network_without_a_record_does_not_stay(there: Stubbed, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("it is full")

    monkeypatch.setattr(LabFolder, "keep", full)
    with pytest.raises(OSError, match="it is full"):
        Lab.up("b")
    assert there.networks == {}


@pytest.mark.parametrize("name", ["class", "is", "1a", "lab\n", "Lab"])
def test_a_name_that_would_not_work_is_refused(there: Stubbed, name: str) -> None:
    with pytest.raises(InputError, match=f"^--name: {name} "):
        Lab.up(name)


def test_two_labs_have_no_machine_of_the_same_name(there: Stubbed) -> None:
    Lab.up("lab1")
    Lab.up("lab", hosts=10)
    with pytest.raises(InputError) as raised:
        Lab.up("lab", hosts=11)
    assert raised.value.message == "--name: lab: lab lab1 already has a machine lab11"
    assert LabFolder("lab").existing().hosts == 10


def test_a_record_that_cannot_be_read_hinders_no_other_lab(
    there: Stubbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Lab.up("b")
    old = LabFolder("old").path
    old.mkdir()
    (old / "lab.json").write_text('{"name": "old", "number": 1}')
    there.start(old, "server")
    assert main(["lab", "list"]) == 0
    listed = capsys.readouterr()
    assert listed.out.startswith("lab b: ")
    assert listed.err.startswith(f"{old}/lab.json: ") and listed.err.endswith(" (rigup lab down old)\n")
    Lab.up("b", hosts=2)
    capsys.readouterr()

    assert main(["lab", "down", "old"]) == 0
    assert capsys.readouterr().err == "removed lab old\n"
    assert not old.exists()
    assert old / "server.pid" not in there.running
    assert list(there.networks) == [1], "the number is another lab's, as far as that record tells"
    assert main(["lab", "down", "old"]) == 2
    assert capsys.readouterr().err == "rigup: lab old does not exist (labs: b)\nhint: rigup lab up --name old\n"


def test_the_network_of_a_record_that_cannot_be_read_goes_where_it_is_that_labs(there: Stubbed) -> None:
    folder = Lab.up("b", hosts=2).folder
    (folder.path / "lab.json").write_text(json.dumps({**folder.fields(), "shape": "round"}))
    take_down("b")
    assert (there.networks, sorted(there.dismantled)) == ({}, [(1, 1), (1, 2)])


def test_one_lab_or_all_are_taken_down(there: Stubbed, capsys: pytest.CaptureFixture[str]) -> None:
    Lab.up("b")
    Lab.up("c")
    assert main(["lab", "down"]) == 2
    assert main(["lab", "down", "b", "--all"]) == 2
    assert main(["lab", "down", "b", "--name", "c"]) == 2
    assert capsys.readouterr().err == (
        "rigup: lab down: several labs exist (b, c)\nhint: name one, or pass --all\n"
        "rigup: lab down: b cannot be combined with --all\nhint: rigup lab down b\n"
        "rigup: lab down: b and --name c differ\nhint: rigup lab down b\n"
    )
    assert main(["lab", "down", "--name", "b"]) == 0
    assert len(there.networks) == 1
    assert main(["lab", "down", "--all"]) == 0
    assert there.networks == {}
