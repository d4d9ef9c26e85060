"""The hub stand-in against the real client, huggingface_hub, unmodified."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from rigup.errors import HostFailed
from rigup.lab.hub.content import commit_id
from rigup.lab.hub.server_process import StandInHub

pytestmark = pytest.mark.rests_on("lab")

REPO = "org/model"
CONTENTS = {
    "model-00001.safetensors": random.Random(1).randbytes(3_000_000),
    "sub/model-00002.safetensors": random.Random(2).randbytes(1_500_000),
    "config.json": b'{"model_type": "none"}\n',
}
COMMIT = commit_id({path: hashlib.sha256(content).hexdigest() for path, content in CONTENTS.items()})


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[StandInHub]:
    for path, content in CONTENTS.items():
        (tmp_path / "root" / REPO / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / REPO / path).write_bytes(content)
    hub = StandInHub.start(tmp_path / "root", tmp_path / "state")
    yield hub
    hub.stop()


def same(folder: Path) -> bool:
    return all((folder / path).read_bytes() == content for path, content in CONTENTS.items())


def on_cdn(hub: StandInHub) -> list[dict[str, Any]]:
    return [entry for entry in hub.log() if entry["host"] == hub.cdn_url.removeprefix("http://")]


@pytest.mark.parametrize("revision", ["main", COMMIT])
def test_a_snapshot_arrives_whole(hub: StandInHub, tmp_path: Path, revision: str) -> None:
    folder = snapshot_download(REPO, revision=revision, endpoint=hub.url, cache_dir=tmp_path / "cache")

    assert same(Path(folder))
    assert Path(folder).name == COMMIT


def test_large_files_come_from_another_host_without_the_token(hub: StandInHub, tmp_path: Path) -> None:
    hub.faults(token="hf_right")
    snapshot_download(REPO, endpoint=hub.url, token="hf_right", cache_dir=tmp_path / "cache")

    assert {entry["path"] for entry in on_cdn(hub)} == {
        f"/cdn/{hashlib.sha256(CONTENTS[path]).hexdigest()}" for path in CONTENTS if path != "config.json"
    }
    assert not any(entry["authorization"] for entry in on_cdn(hub))
    assert all(entry["authorization"] for entry in hub.log() if entry not in on_cdn(hub))
    assert "hf_right" not in (tmp_path / "state" / "requests.jsonl").read_text()


def test_the_cdn_refuses_a_token_and_an_unsigned_address(hub: StandInHub) -> None:
    address = f"{hub.cdn_url}/cdn/{hashlib.sha256(CONTENTS['model-00001.safetensors']).hexdigest()}"

    assert requests.get(f"{address}?Signature=x", headers={"Authorization": "Bearer x"}, timeout=10).status_code == 400
    assert requests.get(address, timeout=10).status_code == 403
    assert requests.get(f"{address}?Signature=x", timeout=10).status_code == 200


def test_one_file_by_name(hub: StandInHub, tmp_path: Path) -> None:
    path = hf_hub_download(REPO, "sub/model-00002.safetensors", endpoint=hub.url, local_dir=tmp_path / "here")

    assert Path(path).read_bytes() == CONTENTS["sub/model-00002.safetensors"]
    assert {entry["method"] for entry in hub.log() if "/resolve/" in entry["path"]} >= {"HEAD"}


def test_revision_and_tree(hub: StandInHub) -> None:
    api = HfApi(endpoint=hub.url)
    tree = {entry.path: entry for entry in api.list_repo_tree(REPO, recursive=True)}

    assert api.model_info(REPO).sha == COMMIT
    assert {path: entry.size for path, entry in tree.items()} == {path: len(c) for path, c in CONTENTS.items()}
    assert tree["model-00001.safetensors"].lfs.sha256 == hashlib.sha256(CONTENTS["model-00001.safetensors"]).hexdigest()
    assert tree["config.json"].lfs is None


def test_what_is_not_there_is_named_as_the_real_hub_names_it(hub: StandInHub, tmp_path: Path) -> None:
    there: dict[str, Any] = {"endpoint": hub.url, "cache_dir": tmp_path}

    with pytest.raises(RepositoryNotFoundError):
        hf_hub_download("org/other", "config.json", **there)
    with pytest.raises(RevisionNotFoundError):
        hf_hub_download(REPO, "config.json", revision="0" * 40, **there)
    with pytest.raises(EntryNotFoundError):
        hf_hub_download(REPO, "other.json", **there)


def test_a_token_is_asked_for_and_may_not_be_enough(hub: StandInHub, tmp_path: Path) -> None:
    hub.faults(token="hf_right")
    with pytest.raises(GatedRepoError):
        hf_hub_download(REPO, "config.json", endpoint=hub.url, token="hf_wrong", cache_dir=tmp_path)
    hub.faults(gated=True)
    with pytest.raises(GatedRepoError):
        hf_hub_download(REPO, "config.json", endpoint=hub.url, token="hf_right", cache_dir=tmp_path)


def test_a_transfer_under_way_follows_a_new_pace(hub: StandInHub) -> None:
    hub.faults(bytes_per_second=20_000)
    path, began = "model-00001.safetensors", time.monotonic()
    with requests.get(f"{hub.url}/{REPO}/resolve/main/{path}", stream=True, timeout=60) as response:
        first = response.raw.read(100)
        hub.faults()
        assert first + response.raw.read() == CONTENTS[path]
    assert time.monotonic() - began < len(CONTENTS[path]) / 20_000 / 2


def test_the_client_survives_a_dropped_connection(hub: StandInHub, tmp_path: Path) -> None:
    hub.faults(drop_after_bytes=1_000_000)
    folder = snapshot_download(REPO, endpoint=hub.url, cache_dir=tmp_path / "cache")

    assert same(Path(folder))
    dropped = {entry["path"] for entry in on_cdn(hub) if entry["bytes"] == 1_000_000}
    assert len(dropped) == 2


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [("bytes=0-0", 0, 0), ("bytes=100-", 100, 2_999_999), ("bytes=-5", 2_999_995, 2_999_999), ("bytes=7-9", 7, 9)],
)
def test_a_range_is_a_part_of_the_file(hub: StandInHub, wanted: str, first: int, last: int) -> None:
    url = f"{hub.url}/{REPO}/resolve/main/model-00001.safetensors"
    answer = requests.get(url, headers={"Range": wanted}, timeout=10)

    assert answer.status_code == 206
    assert answer.headers["Content-Range"] == f"bytes {first}-{last}/3000000"
    assert answer.content == CONTENTS["model-00001.safetensors"][first : last + 1]


def test_a_range_beyond_the_end_is_refused(hub: StandInHub) -> None:
    url = f"{hub.url}/{REPO}/resolve/main/model-00001.safetensors"

    assert requests.get(url, headers={"Range": "bytes=3000000-"}, timeout=10).status_code == 416


@pytest.mark.parametrize("unreadable", ["bytes=-", "bytes=a-b", "lines=1-2"])
def test_a_range_that_says_nothing_is_ignored(hub: StandInHub, unreadable: str) -> None:
    url = f"{hub.url}/{REPO}/resolve/main/config.json"
    answer = requests.get(url, headers={"Range": unreadable}, timeout=10)

    assert (answer.status_code, answer.content) == (200, CONTENTS["config.json"])


def test_a_corrupted_byte_is_one_bit_once(hub: StandInHub) -> None:
    hub.faults(corrupt_times=1)
    url = f"{hub.url}/{REPO}/resolve/main/model-00001.safetensors"
    first, second = (requests.get(url, timeout=10).content for _ in range(2))

    different = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    assert second == CONTENTS["model-00001.safetensors"]
    assert len(different) == 1 and (different[0][0] ^ different[0][1]).bit_count() == 1


def test_failing_requests_are_counted_from_the_moment_the_switch_is_set(hub: StandInHub) -> None:
    url = f"{hub.url}/api/models/{REPO}"
    hub.faults(fail_first=2, fail_status=502)

    assert [requests.get(url, timeout=10).status_code for _ in range(3)] == [502, 502, 200]


def test_the_commit_follows_from_the_content_unless_it_is_given(hub: StandInHub, tmp_path: Path) -> None:
    (tmp_path / "root" / REPO / "config.json").write_bytes(b"{}")
    assert HfApi(endpoint=hub.url).model_info(REPO).sha not in (COMMIT, None)

    given = StandInHub.start(tmp_path / "root", tmp_path / "other", commits={REPO: "a" * 40})
    try:
        assert HfApi(endpoint=given.url).model_info(REPO).sha == "a" * 40
    finally:
        given.stop()


def test_starting_twice_keeps_the_first_and_stopping_ends_it(hub: StandInHub, tmp_path: Path) -> None:
    again = StandInHub.start(tmp_path / "root", tmp_path / "state")
    assert again.url == hub.url and again.running

    hub.stop()
    assert not hub.running
    with pytest.raises(requests.ConnectionError):
        requests.get(again.url, timeout=10)


def test_an_address_that_is_taken_is_one_message(hub: StandInHub, tmp_path: Path) -> None:
    taken = hub.url.removeprefix("http://")
    with pytest.raises(HostFailed) as failed:
        StandInHub.start(tmp_path / "root", tmp_path / "second", bind=taken)
    assert failed.value.message.endswith(f" {taken}: {os.strerror(errno.EADDRINUSE)}")
