"""fetch_source and pin_source against a package index and a file server of its own, on loopback."""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rigup.errors import HostFailed, InputError, Unreachable
from rigup.lock import LockedSource
from rigup.sources.archives import fetch_source, pin_source
from rigup.sources.package_index import index_url
from tests.serving import serving
from tests.unit.sources.stand_in_index import settings_without_pip

ARCHIVE = random.Random(7).randbytes(3_000_000)
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()
NAMES = ["some_engine-1.0.tar.gz", "some_engine-1.0-py3-none-any.whl", "some_engine-1.1.tar.gz", "odd.exe"]


class Index(ThreadingHTTPServer):
    """A package index with one project. `json` or HTML; `drop` bytes end the first download; `broken` is a status."""

    daemon_threads = True
    json = True
    drop = 0
    broken = 0
    content = ARCHIVE

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/simple"


class Handler(BaseHTTPRequestHandler):
    server: Index

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Range")))
        if self.server.broken:
            self.send(self.server.broken, "text/plain", b"broken")
        elif self.path == "/simple/some-engine/" and self.server.json:
            files = ", ".join(
                f'{{"filename": "{name}", "url": "../../files/{name}", "hashes": {{}}}}' for name in NAMES
            )
            self.send(200, "application/vnd.pypi.simple.v1+json", f'{{"files": [{files}]}}'.encode())
        elif self.path == "/simple/some-engine/":
            links = "".join(f'<a href="../../files/{name}#sha256=00">{name}</a><br>' for name in NAMES)
            self.send(200, "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode())
        elif self.path == "/files/some_engine-1.0.tar.gz":
            self.send_archive()
        else:
            self.send(404, "text/plain", b"no such thing")

    def send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_archive(self) -> None:
        content, wanted = self.server.content, self.headers.get("Range")
        first = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        drop, self.server.drop = self.server.drop, 0
        self.wfile.write(content[first : first + drop] if drop else content[first:])


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with serving(Index()) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        settings_without_pip(monkeypatch)
        yield index


def source(address: str = "pypi:Some.Engine==1.0", sha256: str = SHA256) -> LockedSource:
    return LockedSource(engine="llama.cpp", version="b1", address=address, sha256=sha256, root="tree")


def ignore(done: int, total: int) -> None:
    """Nobody is watching."""


@pytest.mark.parametrize("json", [True, False], ids=["json", "html"])
def test_an_sdist_is_found_and_kept_under_its_hash(index: Index, tmp_path: Path, json: bool) -> None:
    index.json = json
    seen: list[tuple[int, int]] = []
    path = fetch_source(source(), tmp_path / "cache", lambda done, total: seen.append((done, total)))

    assert path == tmp_path / "cache" / SHA256
    assert path.read_bytes() == ARCHIVE
    assert seen[-1] == (3_000_000, 3_000_000) and seen == sorted(seen)
    assert [place for place, _ in index.asked] == ["/simple/some-engine/", "/files/some_engine-1.0.tar.gz"]


def test_what_is_in_the_cache_is_not_asked_for(index: Index, tmp_path: Path) -> None:
    fetch_source(source(), tmp_path, ignore)
    asked = len(index.asked)

    assert fetch_source(source(), tmp_path, ignore).read_bytes() == ARCHIVE
    assert len(index.asked) == asked


def test_a_dropped_connection_is_continued(index: Index, tmp_path: Path) -> None:
    index.drop = 1_200_000

    assert fetch_source(source(), tmp_path, ignore).read_bytes() == ARCHIVE
    first, second = (wanted for place, wanted in index.asked if place.startswith("/files/"))
    assert first is None and second is not None and 0 < int(second[6:-1]) <= 1_200_000


def test_what_an_earlier_run_left_is_continued(index: Index, tmp_path: Path) -> None:
    (tmp_path / f"{SHA256}.part").write_bytes(ARCHIVE[:500])

    assert fetch_source(source(), tmp_path, ignore).read_bytes() == ARCHIVE
    assert index.asked[-1] == ("/files/some_engine-1.0.tar.gz", "bytes=500-")


def test_a_wrong_hash_is_named_and_nothing_is_kept(index: Index, tmp_path: Path) -> None:
    index.content = b"something else"
    found = hashlib.sha256(b"something else").hexdigest()

    with pytest.raises(HostFailed) as failed:
        fetch_source(source(), tmp_path, ignore)
    assert failed.value.message == (
        f"llama.cpp b1: pypi:Some.Engine==1.0: sha256 is {found}, but rigup.lock has {SHA256}"
    )
    assert [path.name for path in tmp_path.iterdir()] == [f"{SHA256}.lock"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://example.org/a.tar.gz", 'rigup.lock: sources: llama.cpp b1: address: "http://example.org/a.tar.gz" is'),
        ("pypi:some-engine", 'rigup.lock: sources: llama.cpp b1: address: "pypi:some-engine" is neither an https URL'),
        ("pypi:some-engine==2.0", "pypi:some-engine==2.0: pip's package index has no sdist of it"),
        ("pypi:nothing==1.0", "pypi:nothing==1.0: pip's package index has no sdist of it"),
        ("pypi:../other==1.0", "pypi:../other==1.0: not a package and version"),
    ],
)
def test_an_address_that_leads_nowhere_is_the_users_to_mend(
    index: Index, tmp_path: Path, address: str, message: str
) -> None:
    with pytest.raises(InputError) as failed:
        fetch_source(source(address), tmp_path, ignore)
    assert failed.value.message.startswith(message)


CANNOT = "cannot query pip's package index"


def test_an_index_that_fails_is_one_message(index: Index, tmp_path: Path) -> None:
    index.broken = 500

    with pytest.raises(Unreachable) as failed:
        fetch_source(source(), tmp_path, ignore)
    assert failed.value.message == f"pypi:Some.Engine==1.0: {CANNOT} (HTTP 500)"


def test_no_network_is_one_message_and_keeps_a_password_to_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings_without_pip(monkeypatch)
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    with pytest.raises(Unreachable) as failed:
        fetch_source(source(), tmp_path, ignore)
    assert failed.value.message == f"pypi:Some.Engine==1.0: {CANNOT}"
    with pytest.raises(Unreachable) as failed:
        fetch_source(source("https://127.0.0.1:9/a.tar.gz"), tmp_path, ignore)
    assert failed.value.message == "llama.cpp b1: https://127.0.0.1:9/a.tar.gz: cannot be reached"


def test_the_index_is_the_one_that_pip_uses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    default = index_url()
    assert default.startswith("https://") and default.endswith("/simple")

    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert index_url() == "https://mirror.example/simple"

    monkeypatch.setenv("PIP_INDEX_URL", "https://other.example/simple")
    assert index_url() == "https://other.example/simple"


def archive_of(*names: str) -> bytes:
    """A tar.gz with empty files of these names."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    return made.getvalue()


def pin(cache: Path, root: str = "engine-1.0/tree") -> LockedSource:
    return pin_source("llama.cpp", "b1", "pypi:Some.Engine==1.0", root, cache)


def test_a_pin_is_of_what_lies_there_and_the_archive_is_kept_for_the_build(index: Index, tmp_path: Path) -> None:
    index.content = archive_of("engine-1.0/PKG-INFO", "engine-1.0/tree/CMakeLists.txt")
    index.drop = 50
    made = pin(tmp_path)
    assert made.sha256 == hashlib.sha256(index.content).hexdigest()
    assert (made.address, made.root) == ("pypi:Some.Engine==1.0", "engine-1.0/tree")
    asked = len(index.asked)
    assert fetch_source(made, tmp_path, ignore).read_bytes() == index.content
    assert len(index.asked) == asked


def test_a_pin_is_never_of_an_earlier_download(index: Index, tmp_path: Path) -> None:
    index.content = archive_of("engine-1.0/tree/a")
    first = pin(tmp_path)
    index.content = archive_of("engine-1.0/tree/b")
    assert pin(tmp_path).sha256 == hashlib.sha256(index.content).hexdigest() != first.sha256


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive_of("engine-1.0/trees/a"), "the archive has no folder engine-1.0/tree"),
        (archive_of(), "the archive has no folder engine-1.0/tree"),
        (b"<html>", "not a tar archive"),
        (
            archive_of(*(f"{n}/{random.Random(n).random()}" for n in range(500)))[:2000],
            "not a tar archive",
        ),
    ],
    ids=["folder", "empty", "page", "cut"],
)
def test_what_cannot_be_built_is_not_pinned(index: Index, tmp_path: Path, content: bytes, message: str) -> None:
    index.content = content
    with pytest.raises(InputError) as failed:
        pin(tmp_path)
    assert failed.value.message == f"llama.cpp b1: pypi:Some.Engine==1.0: {message}"
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []
