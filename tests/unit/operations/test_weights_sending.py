"""Weights sent from the controlling machine: a cut transfer is continued where it stopped."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.operations import weights_sending
from rigup.operations.weights_sending import offered, send_weights
from tests.unit.local_host import LocalHost

CONTENT = bytes(range(256)) * 10


class Line(LocalHost):
    """A host to which files can be sent. breaks_after: so many more chunks get through."""

    breaks_after = 1000
    sent = 0

    def put_file(self, content: Any, path: str) -> bool:
        if not self.breaks_after:
            raise OSError("the line is cut")
        self.breaks_after -= 1
        data = content.read()
        self.sent += len(data)
        Path(path).write_bytes(data)
        return True


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(weights_sending, "CHUNK", 1000)
    monkeypatch.setattr(weights_sending.layout, "WORKER_USER", "root" if shutil.which("id") else "")
    monkeypatch.setattr(weights_sending.layout, "WEIGHTS", str(tmp_path))
    source = tmp_path / "house/weights/org/model/rev"
    source.mkdir(parents=True)
    for name in ("a.gguf", "b.gguf"):
        (source / name).write_bytes(CONTENT)
    files = [{"path": name, "size": len(CONTENT)} for name in ("a.gguf", "b.gguf", "elsewhere.gguf")]
    return {"repo": "org/model", "revision": "rev", "folder": str(tmp_path / "weights/rev"), "files": files}


def part(job: dict[str, Any], name: str) -> Path:
    return Path(f"{job['folder']}.incoming/parts/{name}.part")


def test_what_the_wheelhouse_has_is_sent_and_no_more(job: dict[str, Any], tmp_path: Path) -> None:
    house = tmp_path / "house"
    assert [file["path"] for file in offered(job, house)] == ["a.gguf", "b.gguf"]

    send_weights(Line(), job, house, {"b.gguf"})

    assert part(job, "b.gguf").read_bytes() == CONTENT
    assert not part(job, "a.gguf").exists()


def test_a_cut_transfer_is_continued_and_loses_one_chunk_at_most(job: dict[str, Any], tmp_path: Path) -> None:
    line = Line()
    line.breaks_after = 2
    with pytest.raises(OSError, match="the line is cut"):
        send_weights(line, job, tmp_path / "house", {"a.gguf"})
    assert part(job, "a.gguf").read_bytes() == CONTENT[:2000]

    again = Line()
    send_weights(again, job, tmp_path / "house", {"a.gguf"})

    assert part(job, "a.gguf").read_bytes() == CONTENT
    assert again.sent == len(CONTENT) - 2000
    assert not part(job, "a.gguf").with_suffix(".part.chunk").exists()


def test_a_part_that_something_else_has_changed_is_not_written_to(
    job: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line()
    put = line.put_file

    def and_somebody_else_writes(content: Any, path: str) -> bool:
        with part(job, "a.gguf").open("ab") as other:
            other.write(b"x")
        return put(content, path)

    monkeypatch.setattr(line, "put_file", and_somebody_else_writes)
    with pytest.raises(HostFailed):
        send_weights(line, job, tmp_path / "house", {"a.gguf"})


def test_what_does_not_fit_is_refused_before_the_first_byte(job: dict[str, Any], tmp_path: Path) -> None:
    line = Line()
    line.run_shell_command = lambda *a, **k: (  # type: ignore[method-assign]
        (True, type("Said", (), {"stdout": "Avail\n100\n", "stderr": ""})())
        if "df" in a[0].get_raw_value().split()[0]
        else LocalHost.run_shell_command(line, *a, **k)
    )
    with pytest.raises(HostFailed, match=r"disk full: 5\.1 kB are to be sent to .*, 100 B are free"):
        send_weights(line, job, tmp_path / "house")
    assert line.sent == 0
