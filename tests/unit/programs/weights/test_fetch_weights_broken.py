"""fetch_weights.py when things go wrong: every way of stopping halfway, and the next run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from rigup.programs.weights import fetch_weights
from rigup.programs.weights.weights_folder import EXIT_DENIED, EXIT_GONE, load_job
from tests.unit.programs.conftest import Weights, wait_for

MODEL = "model-00001.gguf"


def test_killed_then_continued_where_it_stopped(weights: Weights) -> None:
    job = weights.job()
    weights.interrupted(job, MODEL, at_least=100_000)
    assert not weights.folder.exists()
    have = weights.part(MODEL).stat().st_size

    assert weights.run(job).returncode == 0
    assert weights.fetched()
    ranges = [entry["range"] for entry in weights.requests(MODEL) if entry["status"] == 206]
    assert len(ranges) == 1 and int(ranges[0].removeprefix("bytes=").removesuffix("-")) >= have


def test_a_signal_ends_it_and_its_curl_at_once_and_keeps_the_parts(weights: Weights) -> None:
    weights.hub.faults(bytes_per_second=50_000)
    with weights.start(weights.job(MODEL)) as process:
        wait_for(weights.part(MODEL).exists, "a part")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (143, "error: stopped by SIGTERM\n")
    assert weights.part(MODEL).exists()
    # curl held the lock's descriptor too, so this would wait if it still ran
    weights.hub.faults()
    assert weights.run(weights.job(MODEL)).returncode == 0


def holders(path: str) -> set[str]:
    """The processes that have a file open."""
    found = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(descriptor) == path:
                found.add(descriptor.parts[2])
    return found


def test_killed_it_leaves_no_curl_behind(weights: Weights) -> None:
    weights.hub.faults(bytes_per_second=5_000)
    with weights.start(weights.job(MODEL)) as process:
        wait_for(weights.part(MODEL).exists, "a part")
        assert len(holders(f"{weights.folder}.lock")) == 2, "the program and its curl"
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: not holders(f"{weights.folder}.lock"), "the end of curl")


@pytest.mark.parametrize("at", ["rename", "tidying up"])
def test_stopped_while_files_join_a_folder_the_next_run_completes_it(
    weights: Weights, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    weights.run(weights.job("config.json"))
    job = weights.job(MODEL, "empty")

    def stop(*_: object, **__: object) -> NoReturn:
        raise fetch_weights.FetchError(143, "stopped by SIGTERM")

    def stop_after_the_first(path: Path) -> None:
        sync_folder(path)
        if path == weights.folder:
            stop()

    sync_folder = fetch_weights.sync_folder
    with monkeypatch.context() as patch:
        if at == "rename":
            patch.setattr(fetch_weights, "sync_folder", stop_after_the_first)
        else:
            patch.setattr(fetch_weights.shutil, "rmtree", stop)
        with pytest.raises(fetch_weights.FetchError):
            fetch_weights.Fetch(load_job(job)).run()
    assert (Path(f"{weights.folder}.incoming") / "verified").is_dir(), "it was stopped halfway"

    asked = len(weights.requests(MODEL))
    again = weights.run(job)
    assert (again.returncode, again.stderr) == (0, "")
    assert weights.fetched(MODEL, "empty", "config.json")
    assert weights.run(job, "--check").returncode == 0
    assert len(weights.requests(MODEL)) == asked, "nothing comes a second time"
    assert not Path(f"{weights.folder}.incoming").exists()


@pytest.mark.parametrize("times", [1, 3])
def test_dropped_connections_are_continued(weights: Weights, times: int) -> None:
    weights.hub.faults(drop_after_bytes=100_000, drop_times=times)

    assert weights.run(weights.job()).returncode == 0
    assert weights.fetched()
    sent = sum(entry["bytes"] for entry in weights.requests(MODEL))
    assert sent == 600_000, "every byte came once"


def test_a_hub_that_fails_for_a_while_is_asked_again(weights: Weights) -> None:
    weights.hub.faults(fail_first=5, fail_status=503)

    assert weights.run(weights.job()).returncode == 0
    assert weights.fetched()


def test_a_stalled_transfer_is_cut_and_continued(weights: Weights) -> None:
    weights.hub.faults(bytes_per_second=100)
    with weights.start(weights.job(MODEL, stall_s=1)) as process:
        wait_for(
            lambda: any(entry["bytes"] < 600_000 for entry in weights.requests(MODEL) if entry["status"] == 200),
            "a cut",
        )
        weights.hub.faults()
        process.communicate(timeout=60)

    assert process.returncode == 0
    assert weights.fetched(MODEL)


def test_a_server_without_ranges_means_starting_over(weights: Weights) -> None:
    weights.hub.faults(drop_after_bytes=100_000, ignore_range=True)

    assert weights.run(weights.job()).returncode == 0
    assert weights.fetched()


def test_a_corrupted_byte_is_found_and_the_file_fetched_again(weights: Weights) -> None:
    weights.hub.faults(corrupt_times=1)

    assert weights.run(weights.job(MODEL)).returncode == 0
    assert weights.fetched(MODEL)
    assert sum(entry["bytes"] for entry in weights.requests(MODEL)) == 1_200_000


def test_a_file_that_is_always_wrong_ends_with_both_hashes(weights: Weights) -> None:
    weights.hub.faults(corrupt_times=100)

    done = weights.run(weights.job(MODEL))
    assert done.returncode == 5
    wanted = weights.job(MODEL).read_text().split('"sha256": "')[1][:64]
    message = done.stderr.strip()
    assert message.startswith(f"error: {MODEL}: sha256 is ")
    assert message.endswith(f", not the locked {wanted} (3 downloads)")
    assert not weights.folder.exists() and not weights.part(MODEL).exists()


@pytest.mark.parametrize("rubbish", [b"x" * 1000, b"x" * 600_000, b"x" * 600_001], ids=["short", "whole", "too long"])
def test_rubbish_in_a_part_does_no_lasting_harm(weights: Weights, rubbish: bytes) -> None:
    weights.part(MODEL).parent.mkdir(parents=True)
    weights.part(MODEL).write_bytes(rubbish)

    assert weights.run(weights.job(MODEL)).returncode == 0
    assert weights.fetched(MODEL)


def test_parts_of_another_job_survive(weights: Weights) -> None:
    weights.interrupted(weights.job(MODEL), MODEL, at_least=100_000)
    have = weights.part(MODEL).read_bytes()

    assert weights.run(weights.job("config.json")).returncode == 0
    assert weights.part(MODEL).read_bytes() == have
    assert not (weights.folder / MODEL).exists()
    assert weights.run(weights.job(MODEL)).returncode == 0
    assert weights.fetched("config.json", MODEL)


def test_while_it_waits_for_another_try_it_says_why(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(fetch_weights, "notify_status", said.append)
    monkeypatch.setattr(fetch_weights, "REPORT_EVERY_S", 0.0)
    monkeypatch.setattr(fetch_weights.Fetch, "pause", lambda fetch, tries: 0.2)
    job = load_job(weights.job(MODEL, hub="http://127.0.0.1:9", attempts=2))
    with pytest.raises(fetch_weights.FetchError):
        fetch_weights.Fetch(job).run()
    problem = f"{MODEL} from 127.0.0.1:9: "
    for words in ("will try again", "waiting 0 s before try 2 of 2", "try 2 of 2"):
        assert any(f", {words}: {problem}" in status for status in said), (words, said)


def test_it_gives_up_and_says_why(weights: Weights) -> None:
    done = weights.run(weights.job(MODEL, hub="http://127.0.0.1:9", attempts=2))

    assert done.returncode == 1
    assert done.stderr.startswith(f"error: gave up after 2 tries without progress: {MODEL} from 127.0.0.1:9: ")


@pytest.mark.parametrize(
    ("faults", "revision", "message"),
    [
        (
            {"token": "secret"},
            None,
            "{hub} requires a token that may read {repo} (401, no token was given), or the repository does not exist",
        ),
        (
            {"gated": True},
            None,
            "{hub} refuses {repo} (403, no token was given): accept its terms on its page with the token's account",
        ),
        (
            {},
            "0" * 40,
            "{hub} has no config.json in {repo} at revision " + "0" * 40 + " (404)",
        ),
    ],
    ids=["401", "403", "404"],
)
def test_a_final_no_is_final_at_once(
    weights: Weights, faults: dict[str, object], revision: str | None, message: str
) -> None:
    weights.hub.faults(**faults)
    before = len(weights.requests())

    done = weights.run(weights.job("config.json", **({"revision": revision} if revision else {})))
    assert done.returncode == (EXIT_GONE if revision else EXIT_DENIED)
    assert done.stderr == f"error: {message.format(hub=weights.hub.url, repo=weights.repo)}\n"
    assert len(weights.requests()) == before + 1


@pytest.fixture
def small_disk(weights: Weights) -> Iterator[Path]:
    """The host's weights folder as a disk of 1 MiB."""
    disk = weights.home / "weights"
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk]).returncode:
        pytest.skip("needs the right to mount")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(weights: Weights, small_disk: Path) -> None:
    done = weights.run(weights.job(reserve_bytes=500_000))

    assert done.returncode == 3
    needs = f"{weights.repo} needs 850.3 kB more and 500.0 kB to spare, only 1.0 MB free"
    assert done.stderr == f"error: {weights.folder.parent}: disk full: {needs}\n"
    assert weights.requests() == []


def test_a_disk_that_fills_up_on_the_way_ends_it_and_the_next_run_continues(weights: Weights, small_disk: Path) -> None:
    job = weights.job(MODEL)
    weights.hub.faults(bytes_per_second=200_000)
    with weights.start(job) as process:
        wait_for(lambda: weights.part(MODEL).exists() and weights.part(MODEL).stat().st_size > 0, "a part")
        filler = small_disk / "filler"
        filler.write_bytes(bytes(700_000))
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert f"{weights.folder.parent}: disk full: {weights.repo} needs " in err
    assert not weights.folder.exists()

    filler.unlink()
    weights.hub.faults()
    assert weights.run(job).returncode == 0
    assert weights.fetched(MODEL)
    assert [entry for entry in weights.requests(MODEL) if entry["status"] == 206]


def test_the_token_goes_to_the_hub_alone(weights: Weights) -> None:
    token = "hf_do_not_tell"
    (weights.home / "token").write_text(token + "\n")
    weights.hub.faults(token=token, bytes_per_second=300_000)
    seen = []
    with weights.start(weights.job(token_file=str(weights.home / "token"))) as process:
        wait_for(weights.part(MODEL).exists, "a part")
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.append(path.read_bytes() + (path.parent / "environ").read_bytes())
            except OSError:
                continue
        out, err = process.communicate(timeout=60)

    assert process.returncode == 0 and weights.fetched()
    assert any(b"curl" in text for text in seen) and not any(token.encode() in text for text in seen)
    assert token not in out + err
    hub, cdn = ([e for e in weights.requests() if e["host"] in url] for url in (weights.hub.url, weights.hub.cdn_url))
    assert hub and all(entry["authorization"] for entry in hub)
    assert cdn and not any(entry["authorization"] for entry in cdn)
    assert token not in (weights.hub.state / "requests.jsonl").read_text()


@pytest.mark.parametrize("content", ["", "two words", 'quo"te', "line\nbreak"])
def test_a_token_file_without_a_token_is_refused(weights: Weights, content: str) -> None:
    (weights.home / "token").write_text(content)

    done = weights.run(weights.job(token_file=str(weights.home / "token")))
    assert done.returncode == 2
    assert done.stderr == f"error: token_file: {weights.home}/token does not hold a token (one word)\n"
    assert weights.requests() == []


def test_a_hub_that_throttles_is_left_alone_for_as_long_as_it_says(weights: Weights) -> None:
    weights.hub.faults(fail_first=1, fail_status=429, retry_after_s=2)

    done = weights.run(weights.job("config.json"))

    assert done.returncode == 0, done.stderr
    refused, answered = weights.requests("config.json")
    assert (refused["status"], answered["status"]) == (429, 200)
    assert answered["time"] - refused["time"] >= 2  # of itself it would try again after 1.25 s at most
