"""Weights sent from the controlling machine: a cut transfer is continued where it stopped."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.command import StringCommand

from rigup.errors import HostFailed
from rigup.lock import LockedFile
from rigup.operations.primitives import remote
from rigup.operations.weights import upload
from rigup.operations.weights.upload import offered, offered_bytes, send_weights
from rigup.plan import Checkpoint
from rigup.programs.weights.fetch_weights import Fetch
from rigup.programs.weights.weights_folder import FetchJob, File, Receipt, load_job
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

    def get_fact(self, fact: Any, **arguments: Any) -> Any:
        """Reads it as pyinfra does."""
        _, said = self.run_shell_command(StringCommand(fact().command(**arguments)))
        return fact().process(said.stdout.splitlines())


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(upload, "CHUNK", 1000)
    monkeypatch.setattr(remote, "as_worker", lambda *words: words)
    monkeypatch.setattr(upload.layout, "JOBS", str(tmp_path))
    monkeypatch.setattr(upload.layout, "WEIGHTS", str(tmp_path))
    source = tmp_path / "house/weights/org/model/rev"
    source.mkdir(parents=True)
    for name in ("a.gguf", "b.gguf"):
        (source / name).write_bytes(CONTENT)
    names, sha256 = ("a.gguf", "b.gguf", "elsewhere.gguf"), hashlib.sha256(CONTENT).hexdigest()
    files = [{"path": name, "size": len(CONTENT), "sha256": sha256} for name in names]
    return {"repo": "org/model", "revision": "rev", "folder": str(tmp_path / "weights/rev"), "files": files}


def part(job: dict[str, Any], name: str) -> Path:
    return Path(f"{job['folder']}.incoming/parts/{name}.part")


def test_what_the_wheelhouse_has_is_sent_and_no_more(job: dict[str, Any], tmp_path: Path) -> None:
    house = tmp_path / "house"
    assert [file["path"] for file in offered(job, house)] == ["a.gguf", "b.gguf"]
    files = tuple(LockedFile(**file) for file in job["files"])
    checkpoint = Checkpoint(repo="org/model", quant="Q4", bytes=3 * len(CONTENT), revision="rev", files=files)
    assert offered_bytes(checkpoint, house) == 2 * len(CONTENT)
    assert offered_bytes(checkpoint.model_copy(update={"revision": None}), house) == 0

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
    assert not (tmp_path / "weights.chunk").exists()


@pytest.mark.parametrize("damaged", [CONTENT[:1500], b"\1" + CONTENT[1:], CONTENT + b"x"], ids=len)
def test_a_damaged_file_is_sent_again_and_replaced(job: dict[str, Any], tmp_path: Path, damaged: bytes) -> None:
    folder = Path(job["folder"])
    folder.mkdir(parents=True)
    (folder / "a.gguf").write_bytes(damaged)
    job["files"] = job["files"][:1]
    line = Line()
    send_weights(line, job, tmp_path / "house")
    assert (line.sent, part(job, "a.gguf").read_bytes()) == (len(CONTENT), CONTENT)

    path = tmp_path / "job.json"
    path.write_text(json.dumps({**job, "hub": "http://127.0.0.1:9", "attempts": 1}))
    Fetch(load_job(path)).run()
    assert (folder / "a.gguf").read_bytes() == CONTENT
    send_weights(line, job, tmp_path / "house")
    assert line.sent == len(CONTENT), "nothing is lacking any more"


def test_what_is_whole_is_not_sent_and_not_hashed_where_a_receipt_vouches_for_it(
    job: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(job["folder"])
    folder.mkdir(parents=True)
    for name in ("a.gguf", "b.gguf"):
        (folder / name).write_bytes(CONTENT)
    receipt = Receipt(folder)
    receipt.add(File(**job["files"][0]))
    receipt.write(FetchJob(folder, ()))
    line = Line()
    send_weights(line, job, tmp_path / "house")
    assert line.sent == 0
    looked = next(command for command in line.commands if "sha256sum" in command)
    assert "b.gguf" in looked and "a.gguf" not in looked


def test_a_part_that_has_outgrown_its_file_is_sent_from_scratch(job: dict[str, Any], tmp_path: Path) -> None:
    part(job, "a.gguf").parent.mkdir(parents=True)
    part(job, "a.gguf").write_bytes(CONTENT + b"x")
    send_weights(Line(), job, tmp_path / "house", {"a.gguf"})
    assert part(job, "a.gguf").read_bytes() == CONTENT


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
    with pytest.raises(HostFailed) as caught:
        send_weights(line, job, tmp_path / "house", {"a.gguf"})
    assert caught.value.message == f"box: sending a.gguf: something else has written to {part(job, 'a.gguf')}"


def test_what_does_not_fit_is_refused_before_the_first_byte(job: dict[str, Any], tmp_path: Path) -> None:
    line = Line()
    line.run_shell_command = lambda *a, **k: (  # type: ignore[method-assign]
        (True, type("Said", (), {"stdout": "Avail\n100\n", "stderr": ""})())
        if "df" in a[0].get_raw_value().split()[0]
        else LocalHost.run_shell_command(line, *a, **k)
    )
    with pytest.raises(HostFailed, match=r"disk full: 5\.1 kB needed in .*, 100 B free"):
        send_weights(line, job, tmp_path / "house")
    assert line.sent == 0
