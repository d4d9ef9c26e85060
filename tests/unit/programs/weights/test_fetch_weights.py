"""fetch_weights.py against a hub: what it puts in place, and how little a second run does."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from rigup.programs.weights.weights_folder import EXIT_GONE
from tests.unit.programs.conftest import Weights, wait_for


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and mtime of every file below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def test_everything_arrives_and_nothing_else_is_left(weights: Weights) -> None:
    done = weights.run(weights.job())

    assert (done.returncode, done.stderr) == (0, "")
    assert weights.fetched()
    assert done.stdout.splitlines()[-1] == "progress 850300 850300 bytes"
    assert not Path(f"{weights.folder}.incoming").exists()
    assert {path.name for path in weights.folder.iterdir()} == {
        ".rigup-receipt.json",
        "config.json",
        "empty",
        "model-00001.gguf",
        "quants",
    }


def test_a_file_of_ollamas_registry_is_asked_for_by_its_hash(weights: Weights) -> None:
    """And no token is sent, to the registry or to the redirect's target."""
    blobs = f"{weights.hub.url}/v2/{weights.repo}/blobs"
    done = weights.run(weights.job("model-00001.gguf", blobs=blobs, revision="f" * 40))

    assert (done.returncode, done.stderr) == (0, "")
    assert weights.fetched("model-00001.gguf")
    assert weights.requests()[0]["path"].startswith(f"/v2/{weights.repo}/blobs/sha256:")
    assert not any(request["authorization"] for request in weights.requests())

    gone = weights.run(weights.job("config.json", blobs=f"{blobs}/none", folder=f"{weights.folder}-2"))
    assert gone.returncode == EXIT_GONE and "(404)" in gone.stderr

    weights.hub.faults(gated=True)
    denied = weights.run(weights.job("config.json", blobs=blobs, folder=f"{weights.folder}-3"))
    assert denied.returncode != 0 and "(401): choose a public model, as rigup does not log in" in denied.stderr


def test_the_receipt_says_what_lies_there(weights: Weights) -> None:
    weights.run(weights.job())

    receipt = json.loads((weights.folder / ".rigup-receipt.json").read_text())
    status = (weights.folder / "config.json").stat()
    entry = next(entry for entry in receipt["files"] if entry["path"] == "config.json")
    assert (receipt["schema"], receipt["repo"], receipt["revision"]) == (1, weights.repo, weights.revision)
    assert (entry["size"], entry["mtime_ns"], entry["inode"]) == (300, status.st_mtime_ns, status.st_ino)


def test_a_second_run_asks_nothing_and_touches_nothing(weights: Weights) -> None:
    job = weights.job()
    weights.run(job)
    before, asked = state(weights.folder), len(weights.requests())

    assert weights.run(job).returncode == 0
    assert state(weights.folder) == before
    assert len(weights.requests()) == asked


def test_others_may_read_what_was_fetched(weights: Weights) -> None:
    weights.run(weights.job())

    assert (weights.folder / "config.json").stat().st_mode & 0o777 == 0o644
    assert weights.folder.stat().st_mode & 0o777 == 0o755


def test_files_join_a_folder_without_touching_what_is_there(weights: Weights) -> None:
    first, second = weights.job("config.json", "empty"), weights.job("model-00001.gguf", "quants/model 00002+x.gguf")
    weights.run(first)
    before = state(weights.folder)
    receipt = str(weights.folder / ".rigup-receipt.json")

    assert weights.run(second).returncode == 0
    assert weights.fetched()
    after = state(weights.folder)
    assert {path: after[path] for path in before if path != receipt} == {
        path: kept for path, kept in before.items() if path != receipt
    }
    assert weights.run(first, "--check").returncode == weights.run(second, "--check").returncode == 0
    assert not Path(f"{weights.folder}.incoming").exists()


def test_a_whole_file_that_no_receipt_vouches_for_is_hashed_not_fetched(weights: Weights) -> None:
    job = weights.job()
    weights.run(job)
    (weights.folder / ".rigup-receipt.json").unlink()
    assert weights.run(job, "--check").returncode == 1
    asked = len(weights.requests())

    assert weights.run(job).returncode == 0
    assert weights.run(job, "--check").returncode == 0
    assert len(weights.requests()) == asked


def test_a_file_that_was_changed_is_fetched_again(weights: Weights) -> None:
    job = weights.job()
    weights.run(job)
    (weights.folder / "config.json").write_bytes(b"x" * 300)

    assert weights.run(job).returncode == 0
    assert weights.fetched()
    assert len(weights.requests("config.json")) == 2
    assert len([entry for entry in weights.requests("model-00001.gguf") if entry["host"] in weights.hub.cdn_url]) == 1


@pytest.mark.parametrize("deep", [False, True])
def test_check_names_what_is_missing_and_what_is_bad(weights: Weights, deep: bool) -> None:
    job, flags = weights.job(), ("--check", "--deep") if deep else ("--check",)
    assert json.loads(weights.run(job, *flags).stdout) == {
        "complete": False,
        "missing": list(weights.contents),
        "bad": [],
    }
    weights.run(job)
    assert json.loads(weights.run(job, *flags).stdout) == {"complete": True, "missing": [], "bad": []}
    (weights.folder / "config.json").unlink()
    os.truncate(weights.folder / "model-00001.gguf", 599_999)

    found = weights.run(job, *flags)
    assert found.returncode == 1
    assert json.loads(found.stdout) == {"complete": False, "missing": ["config.json"], "bad": ["model-00001.gguf"]}


def test_only_a_deep_check_reads_the_bytes(weights: Weights) -> None:
    job = weights.job()
    weights.run(job)
    model = weights.folder / "model-00001.gguf"
    times = model.stat()
    with model.open("r+b") as file:
        file.write(b"silent rot")
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))

    assert weights.run(job, "--check").returncode == 0
    assert json.loads(weights.run(job, "--check", "--deep").stdout)["bad"] == ["model-00001.gguf"]


def test_a_check_needs_only_folder_and_files_and_reads_standard_input(weights: Weights) -> None:
    whole = json.loads(weights.job().read_text())
    short = json.dumps({"folder": whole["folder"], "files": whole["files"]})

    found = weights.run(Path("-"), "--check", standard_input=short)
    assert json.loads(found.stdout)["missing"] == list(weights.contents)


def test_progress_goes_to_systemd(weights: Weights, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        address = os.path.relpath(tmp_path / "notify") if len(str(tmp_path)) > 90 else str(tmp_path / "notify")
        listener.bind(address)
        listener.setblocking(False)
        assert weights.run(weights.job(), NOTIFY_SOCKET=address).returncode == 0
        messages = []
        while True:
            try:
                messages.append(listener.recv(4096).decode())
            except BlockingIOError:
                break
    assert messages[-1] == "STATUS=850300/850300 bytes"


def test_two_at_once_share_the_work_and_never_a_part(weights: Weights) -> None:
    job = weights.job("model-00001.gguf")
    weights.hub.faults(bytes_per_second=600_000)
    with weights.start(job) as first:
        wait_for(weights.part("model-00001.gguf").exists, "the first one's part")
        second = weights.run(job)
        first.communicate()

    assert (first.returncode, second.returncode) == (0, 0)
    assert weights.fetched("model-00001.gguf")
    assert sum(entry["bytes"] for entry in weights.requests("model-00001.gguf")) == 600_000


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b", "line\nbreak", ""])
def test_a_path_that_leaves_the_folder_is_refused(weights: Weights, path: str) -> None:
    job = weights.job(files=[{"path": path, "size": 1, "sha256": "0" * 64}])

    done = weights.run(job)
    assert done.returncode == 2
    assert done.stderr == f"error: {job}: files: {path!r} is not a path inside the repository\n"


def test_a_job_that_is_none_is_one_message(weights: Weights, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"folder": 1}')

    done = weights.run(tmp_path / "job.json")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path}/job.json: not a valid job: ")
    assert "Traceback" not in done.stderr
