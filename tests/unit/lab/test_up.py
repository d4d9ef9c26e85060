"""What `Lab.up` does about this machine's limits, and about machines that did come up where others did not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rigup.errors import HostFailed
from rigup.lab import inotify, lab, network, prerequisites
from rigup.lab.lab import Lab


@pytest.mark.parametrize(("limit", "after", "said"), [(128, 300, 1), (300, 300, 0), (1024, 1024, 0)])
def test_room_is_made_where_there_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, after: int, said: int
) -> None:
    path = tmp_path / "max_user_instances"
    path.write_text(f"{limit}\n")
    monkeypatch.setattr(inotify, "LIMIT", path)
    lines: list[str] = []
    inotify.make_room(20, lines.append)
    assert int(path.read_text()) == after
    assert lines == ["fs.inotify.max_user_instances was 128, is 300 now: 20 machines need that many"][:said]


@pytest.mark.parametrize("was_up", [False, True])
def test_machines_end_where_not_all_came_up_unless_they_were_up_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, was_up: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ended: list[str] = []
    record = SimpleNamespace(name="b", hosts=2)
    monkeypatch.setattr(prerequisites, "check", lambda: None)
    monkeypatch.setattr(network, "up", lambda _: True)
    monkeypatch.setattr(lab.LabFolder, "record", lambda self: record if was_up else None)
    monkeypatch.setattr(lab, "_record", lambda *_: record)
    monkeypatch.setattr(Lab, "_dismantle", lambda self: ended.append(self.record.name))

    def fails(*_: object) -> None:
        raise HostFailed("b2: did not boot")

    monkeypatch.setattr(Lab, "_bring_up", fails)
    with pytest.raises(HostFailed, match="b2: did not boot"):
        Lab.up("b", hosts=2)
    assert ended == ([] if was_up else ["b"])
