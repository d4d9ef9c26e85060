"""Hub, index, registry and key files that lie: a typed result or one error, in bounded time and memory."""

from __future__ import annotations

import gzip
import itertools
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rigup.errors import InputError, RigupError, Unreachable
from rigup.operations.apt.openpgp import fingerprints
from rigup.sources import http_retry, hub, package_index
from rigup.sources.downloads import download
from rigup.sources.hub import Hub, HubFile
from rigup.sources.package_index import IndexFile, project_files
from rigup.sources.registry import Registry
from rigup.sources.remote_wheel import open_wheel
from tests.hostile import ends
from tests.unit.sources.hostile_server import Script, head, hostile_server
from tests.unit.sources.stand_in_index import wheel

MEBIBYTE = 2**20
REPO, COMMIT, SHA256 = "org/model", "c" * 40, "a" * 64
WHEEL = "vllm-1.0-py3-none-any.whl"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([10**30, SHA256, COMMIT]),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=8), values, max_size=4),
    max_leaves=12,
)
FILE = st.fixed_dictionaries(
    {"type": st.sampled_from(["file", "directory", "other"])},
    optional={"path": JSON, "size": JSON, "oid": JSON | st.just(COMMIT), "lfs": JSON, "xetHash": JSON},
)
PROPERTY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def index_of_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(package_index, "pip_settings", dict)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@contextmanager
def ends_within(mebibytes: int) -> Iterator[None]:
    """Fails what takes more memory than that, or does not end."""
    tracemalloc.start()
    try:
        with ends():
            yield
        assert tracemalloc.get_traced_memory()[1] < mebibytes * MEBIBYTE
    finally:
        tracemalloc.stop()


def whole(content: bytes, kind: str = "application/json") -> Script:
    return lambda request: (
        head(f"Content-Type: {kind}", f"Content-Length: {len(content)}", "Connection: close"),
        content,
    )


def ask_hub(url: str) -> object:
    return Hub(url, "hf_secret", pause=lambda seconds: None).files(REPO, COMMIT)


def ask_revision(url: str) -> object:
    return Hub(url, "hf_secret", pause=lambda seconds: None).commit(REPO, "main")


def ask_index(url: str) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_INDEX_URL", url)
        return project_files("vllm")


def ask_registry(url: str) -> object:
    return Registry({"docker.io": url}, pause=lambda seconds: None).digest("docker.io/a/b", "v1", "x86_64")


def ask_wheel(url: str) -> object:
    with open_wheel(IndexFile(WHEEL, f"{url}/{WHEEL}", SHA256)) as opened:
        return [opened.read(name) for name in opened.namelist()]


PARTIES: list[Callable[[str], object]] = [ask_hub, ask_revision, ask_index, ask_registry, ask_wheel]


@cache
def packed() -> bytes:
    return gzip.compress(bytes(200 * MEBIBYTE))


def endless(request: str) -> Iterator[bytes]:
    yield head(
        "Content-Type: application/json", "Content-Range: bytes 0-99999999999/100000000000", status="206 Partial"
    )
    yield b"["
    yield from itertools.repeat(b"[]," * 100_000)


def inflating(request: str) -> Iterator[bytes]:
    yield head("Content-Encoding: gzip", f"Content-Length: {len(packed())}")
    yield packed()


def dripping(request: str) -> Iterator[bytes | float]:
    yield head("Content-Length: 1000000", "Content-Range: bytes 0-999999/1000000", status="206 Partial")
    while True:
        yield b" "
        yield 0.05


def redirecting(request: str) -> Iterator[bytes]:
    yield head("Location: /again", "Content-Length: 0", status="302 Found")


def mad_redirect(request: str) -> Iterator[bytes]:
    yield head("Location: http://[\xff", "Content-Length: 0", status="302 Found")


DEEP = whole(b"[" * 200_000)
DEEP_FILES = whole(b'{"files":' * 200_000, "application/vnd.pypi.simple.v1+json")
MANY = whole(b"[" + b"[]," * 2_000_000 + b"[]]")
NAN = whole(b'{"sha": NaN, "files": NaN, "manifests": NaN}')


@pytest.mark.usefixtures("nothing_to_collect")
@pytest.mark.parametrize("party", PARTIES, ids=lambda party: party.__name__)
@pytest.mark.parametrize(
    "script",
    [endless, inflating, dripping, redirecting, mad_redirect, DEEP, DEEP_FILES, MANY, NAN],
    ids=["endless", "inflating", "dripping", "redirecting", "mad", "deep", "deep files", "many", "NaN"],
)
def test_a_hostile_party_ends_in_one_error(
    monkeypatch: pytest.MonkeyPatch, party: Callable[[str], object], script: Script
) -> None:
    seconds = 1.0 if script is dripping else 4.0  # only what drips is ended by time
    for module, name in ((http_retry, "EXCHANGE_S"), (hub, "LISTING_S"), (package_index, "PAGE_S")):
        monkeypatch.setattr(module, name, seconds)
    monkeypatch.setattr("rigup.sources.remote_wheel.READ_S", seconds)
    monkeypatch.setattr("rigup.sources.downloads.BLOCK_S", 1.0)
    monkeypatch.setattr("rigup.sources.downloads.PAUSES_S", (0.0, 0.0))
    with hostile_server(script) as url, ends_within(300), pytest.raises(RigupError) as error:
        party(url)
    assert "hf_secret" not in error.value.message
    assert error.value.message.isprintable() and error.value.hint


def test_links_within_links_do_not_multiply() -> None:
    page = whole(b'<a href="x.whl">y' * 20_000, "text/html")
    with hostile_server(page) as url, ends_within(100):
        assert len(ask_index(url)) == 20_000  # type: ignore[arg-type]


def test_a_token_stays_with_the_hub_over_redirects_and_pages() -> None:
    seen: list[str] = []

    def other(request: str) -> Iterator[bytes]:
        seen.append(request)
        yield from whole(b"[]")(request)

    with hostile_server(other) as stranger:
        link = f'Link: <{stranger}/page>; rel="next"'
        for first in (
            lambda request: (head(f"Location: {stranger}/x", "Content-Length: 0", status="307 Temporary Redirect"),),
            lambda request: (head(link, "Content-Length: 2", "Connection: close"), b"[]"),
        ):
            with hostile_server(first) as url:
                assert ask_hub(url) == {}
    assert len(seen) == 2
    assert not any("hf_secret" in request for request in seen)


def test_a_file_is_not_larger_than_it_may_be(tmp_path: Path) -> None:
    with hostile_server(endless) as url, pytest.raises(Unreachable, match="the server sent more than"):
        download(url, "a file", tmp_path / "part", most_bytes=3 * MEBIBYTE)
    assert (tmp_path / "part").stat().st_size <= 3 * MEBIBYTE


def test_a_member_that_inflates_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / WHEEL
    path.write_bytes(wheel(WHEEL, members={"vllm/envs.py": bytes(100 * MEBIBYTE)}))
    with ends_within(200), pytest.raises(InputError, match=r"'vllm/envs\.py' is too large to read"):
        open_wheel(IndexFile(WHEEL, path.as_uri(), None)).read("vllm/envs.py")


@PROPERTY
@given(st.lists(FILE, max_size=4) | JSON)
def test_any_listing_of_a_hub(document: Any) -> None:
    with hostile_server(whole(json.dumps(document).encode())) as url:
        try:
            found = ask_hub(url)
        except Unreachable as error:
            assert url.partition("//")[2] in error.message
        else:
            assert isinstance(found, dict)
            for path, file in found.items():
                assert isinstance(file, HubFile) and file.path == path
                assert type(file.size) is int and 0 <= file.size <= 2**44


@PROPERTY
@given(st.dictionaries(st.sampled_from(["id", "sha", "siblings", "tags", "cardData", "gated"]), JSON) | JSON)
def test_any_revision_of_a_hub(document: Any) -> None:
    with hostile_server(whole(json.dumps(document).encode())) as url:
        try:
            assert ask_revision(url) == document["sha"]
        except Unreachable as error:
            assert url.partition("//")[2] in error.message


ENTRY = st.fixed_dictionaries(
    {"filename": JSON | st.just(WHEEL), "url": JSON | st.just(f"../{WHEEL}"), "hashes": JSON | st.just({})},
    optional={"yanked": JSON, "size": JSON, "upload-time": JSON, "core-metadata": JSON},
)


@PROPERTY
@given(
    st.fixed_dictionaries({"files": st.lists(ENTRY, max_size=3) | JSON}).map(json.dumps)
    | st.text(max_size=100)
    | st.lists(st.sampled_from(['<a href="', "x.whl", '">', "</a>", "<!--", "<base href=", "//[", "#sha256="])).map(
        "".join
    ),
    st.sampled_from(["application/vnd.pypi.simple.v1+json", "text/html", "text/html; charset=bz2", ""]),
)
def test_any_page_of_an_index(page: str, kind: str) -> None:
    with hostile_server(whole(page.encode(errors="replace"), kind)) as url:
        try:
            found = ask_index(url)
        except Unreachable as error:
            assert error.message == "vllm: the server is not a package index"
        else:
            assert isinstance(found, tuple)
            for file in found:
                assert "/" not in file.name and file.name.isprintable() and file.url.startswith(("http://", "https://"))
                assert file.sha256 is None or len(file.sha256) == 64


DESCRIPTOR = st.fixed_dictionaries(
    {"digest": st.just(f"sha256:{SHA256}") | JSON}, optional={"size": JSON, "platform": JSON}
)


@PROPERTY
@given(
    st.dictionaries(st.sampled_from(["manifests", "layers"]), st.lists(DESCRIPTOR, max_size=3) | JSON)
    | st.fixed_dictionaries({"config": DESCRIPTOR | JSON, "layers": st.lists(DESCRIPTOR, max_size=3)})
    | JSON
)
def test_any_manifest_of_a_registry(document: Any) -> None:
    with hostile_server(whole(json.dumps(document).encode())) as url:
        try:
            digest, size = ask_registry(url)  # type: ignore[misc]
        except RigupError as error:
            assert error.message.startswith("docker.io/a/b:v1: ")
        else:
            assert digest.startswith("sha256:") and type(size) is int and size >= 0


@PROPERTY
@given(st.data())
def test_any_bytes_of_a_wheel(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(wheel(WHEEL, members={"vllm/envs.py": b"x = 1\n" * 50}))
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / WHEEL
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        opened = open_wheel(IndexFile(WHEEL, path.as_uri(), None))
        assert all(isinstance(opened.read(name), bytes) for name in opened.namelist())
    except InputError as error:
        assert error.message.startswith(f"{WHEEL}: ")


@given(
    st.binary(max_size=300)
    | st.lists(st.sampled_from([b"\xc6", b"\x98", b"\xff", b"\x04", b"\x00" * 4]), max_size=20).map(b"".join)
)
def test_any_bytes_of_a_key_file(content: bytes) -> None:
    try:
        assert all(len(found) == 40 for found in fingerprints(content))
    except ValueError as error:
        assert str(error)
