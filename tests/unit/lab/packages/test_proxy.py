"""What the package proxy offers, and what this machine's settings say. No registry is asked."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from rigup.errors import InputError
from rigup.lab.packages import proxy as packages
from rigup.lab.packages import registries, upstream
from rigup.lab.packages.registries import Source, without_login
from rigup.lab.packages.upstream import Upstream
from tests.serving import serving

DEBIAN = """\
Types: deb deb-src
# http://old.example/debian
URIs: https://mirror.example/debian/
Suites: bookworm
  bookworm-updates
Components: main

Types: deb
URIs: http://security.example/debian-security
Suites: bookworm-security
Components: main
"""
DEBIAN_MIRRORS = ("https://mirror.example/debian", "http://security.example/debian-security")


def source(uri: str, suites: str = "bookworm", components: str = "main") -> Source:
    return Source(uri, tuple(suites.split()), tuple(components.split()))


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose apt reads its archive over https, and whose pip and proxies are set to nothing."""
    monkeypatch.setattr(registries, "sources", lambda: [source("https://mirror.example/debian")])
    for module in (registries, upstream):
        monkeypatch.setattr(module, "pip_settings", dict[str, str])
    monkeypatch.setattr(registries, "apt_proxies", dict[str, str])


@pytest.fixture
def etc_apt(tmp_path: Path) -> Path:
    """An /etc/apt with Debian's sources in the new format."""
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(DEBIAN)
    return tmp_path


def test_apt_sources_are_read_in_both_formats(etc_apt: Path) -> None:
    (etc_apt / "sources.list").write_text(
        "# deb http://commented.example/debian bookworm main\n"
        "deb-src http://source.example/debian bookworm main\n"
        "deb file:/media/cd bookworm main\n"
        "deb [arch=amd64 signed-by=/x.gpg] http://tools.example/debian/ stable main contrib # ours\n"
    )
    assert registries.sources(etc_apt) == [
        source("http://tools.example/debian", "stable", "main contrib"),
        source("https://mirror.example/debian", "bookworm bookworm-updates"),
        source("http://security.example/debian-security", "bookworm-security"),
    ]


def test_what_apt_does_not_read_is_not_read(etc_apt: Path) -> None:
    off = "Types: deb\nURIs: http://off.example/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n"
    folder = etc_apt / "sources.list.d"
    (folder / "off.sources").write_text(off)
    for name in ("old.list.save", "old.sources.bak", "old.list~"):
        (folder / name).write_text("deb http://old.example/debian bookworm main\n")
    assert [found.uri for found in registries.sources(etc_apt)] == list(DEBIAN_MIRRORS)


@pytest.mark.parametrize("file", ["a.list", "z.list"])
@pytest.mark.parametrize(
    "other",
    [
        "[signed-by=/x.asc] https://containers.example/linux/debian bookworm stable",
        "[signed-by=/x.asc] https://network.example/stable/debian bookworm main",
    ],
)
def test_another_archive_for_debian_is_not_taken_for_debians(etc_apt: Path, file: str, other: str) -> None:
    (etc_apt / "sources.list.d" / file).write_text(f"deb {other}\n")
    assert registries.debian_mirrors(registries.sources(etc_apt)) == DEBIAN_MIRRORS


def test_debians_archive_without_updates_is_known_by_its_neighbour_or_its_path() -> None:
    other = source("http://network.example/stable/debian")
    for debian, security in (
        ("http://deb.example/debian", "http://deb.example/debian-security"),
        ("http://mirror.example/debian", "http://security.example/debian-security"),
    ):
        found = [other, source(debian), source(security, "bookworm-security")]
        assert registries.debian_mirrors(found) == (debian, security)
    assert registries.debian_mirrors([source("http://archive.example/ubuntu", "noble noble-updates")]) is None


def test_a_login_in_a_source_goes_nowhere(etc_apt: Path) -> None:
    file = etc_apt / "sources.list.d" / "debian.sources"
    file.write_text(DEBIAN.replace("https://", "https://user:s3cret@"))
    found = registries.sources(etc_apt)
    assert (found[0].uri, found[0].login) == ("https://mirror.example/debian", True)
    with pytest.raises(InputError) as raised:
        registries.debian_mirrors(found)
    assert raised.value.message == (
        "/etc/apt: https://mirror.example/debian: its address contains a login, which lab images cannot use"
    )


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("http://mirror.example/debian/dists/x", "https://mirror.example/debian/dists/x"),
        ("http://other.example/debian/dists/x", "http://other.example/debian/dists/x"),
        ("/pypi/simple/six/", "https://index.example/simple/six/"),
        ("http://mirror.example/debian-secrets/x", None),
        ("http://mirror.example/debian/../secrets", None),
        ("http://elsewhere.example/debian/x", None),
        ("/pypi/files/files.example/six.whl", None),
        ("/etc/passwd", None),
    ],
)
def test_only_what_apt_and_pip_are_set_up_for_is_offered(settings: None, target: str, address: str | None) -> None:
    archives = ["http://mirror.example/debian", "http://other.example/debian"]
    assert Upstream(archives, "https://index.example/simple").address(target) == address


def test_files_of_the_index_are_offered_once_its_page_named_their_host(settings: None) -> None:
    offered = Upstream([], "https://index.example/simple")
    page = '<a href="https://files.example/a/six.whl#sha256=1">six</a> <a href="../../own/six.tar.gz">six</a>'
    assert offered.offered(page, "https://index.example/simple/six/") == (
        '<a href="/pypi/files/files.example/a/six.whl#sha256=1">six</a> '
        '<a href="/pypi/files/index.example/own/six.tar.gz">six</a>'
    )
    assert offered.address("/pypi/files/files.example/a/six.whl") == "https://files.example/a/six.whl"
    assert offered.address("/pypi/files/index.example/own/six.tar.gz") == "https://index.example/own/six.tar.gz"


def test_the_query_of_a_file_stays_with_it(settings: None) -> None:
    offered = Upstream([], "https://index.example/simple")
    page = '<a href="https://files.example/six.whl?sig=a..b&amp;x=1#sha256=1">six</a>'
    assert offered.offered(page, "https://index.example/simple/six/") == (
        '<a href="/pypi/files/files.example/six.whl?sig=a..b&amp;x=1#sha256=1">six</a>'
    )
    asked = "/pypi/files/files.example/six.whl?sig=a..b&x=1"
    assert offered.address(asked) == "https://files.example/six.whl?sig=a..b&x=1"


def test_without_an_index_none_is_offered(settings: None) -> None:
    assert Upstream([], None).address("/pypi/simple/six/") is None


class _Index(BaseHTTPRequestHandler):
    """Stands for an index that asks for a login and keeps its files on another host, to which it redirects."""

    seen: list[tuple[str, str | None]]
    elsewhere: str

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers["Authorization"]))
        self.send_response(302 if self.path.startswith("/simple/") else 200)
        self.send_header("Location", self.elsewhere)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index() -> Iterator[ThreadingHTTPServer]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Index)) as server:
        _Index.seen, _Index.elsewhere = [], f"http://localhost:{server.server_port}/file"
        yield server


def test_the_login_of_an_index_goes_to_it_alone(settings: None, index: ThreadingHTTPServer) -> None:
    offered = Upstream([], f"http://user:pass@127.0.0.1:{index.server_port}/simple")
    with offered.open("/pypi/simple/six/", {}) as response:
        assert response.status == 200
    assert _Index.seen == [("/simple/six/", "Basic dXNlcjpwYXNz"), ("/file", None)]


def test_a_login_is_taken_out_of_a_url() -> None:
    assert without_login("https://a:b%40c@host:8/simple") == ("https://host:8/simple", "Basic YTpiQGM=")
    assert without_login("https://host/simple") == ("https://host/simple", "")


class _Silent:
    """Stands for an upstream whose server says no more in the middle of a file."""

    status, url = 200, ""

    def __init__(self) -> None:
        self.headers = {"Content-Length": "100000"}
        self.parts = iter([b"x" * 1000])

    def read(self, size: int) -> bytes:
        for part in self.parts:
            return part
        raise TimeoutError("timed out")

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class _Proxy(ThreadingHTTPServer):
    """The package proxy outside a lab, before such an upstream."""

    number = 1

    def __init__(self, kept: Path) -> None:
        super().__init__(("127.0.0.1", 0), packages.PackageHandler)
        self.kept = kept
        self.upstream = SimpleNamespace(address=lambda target: f"http://mirror.example{target}", open=self.open)

    def open(self, target: str, headers: dict[str, str]) -> _Silent:
        return _Silent()

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def test_a_file_that_breaks_off_outside_breaks_off_inside(tmp_path: Path) -> None:
    with serving(_Proxy(tmp_path)) as proxy, socket.create_connection(proxy.server_address, timeout=60) as client:
        client.sendall(b"GET /a.deb HTTP/1.1\r\nHost: mirror.example\r\n\r\n")
        with client.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b"x" * 1000
    assert list(tmp_path.iterdir()) == []


class _Whole(_Silent):
    """Stands for an upstream that has every file."""

    def __init__(self) -> None:
        self.headers = {"Content-Length": "1000"}
        self.parts = iter([b"x" * 1000, b""])


def asked(proxy: ThreadingHTTPServer, target: str) -> bytes:
    with socket.create_connection(proxy.server_address, timeout=60) as client:
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: mirror.example\r\nConnection: close\r\n\r\n".encode())
        with client.makefile("rb") as answer:
            return answer.read().partition(b"\r\n\r\n")[2]


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Proxy]:
    monkeypatch.setattr(packages, "LEAST_FREE", 0)
    with serving(_Proxy(tmp_path)) as proxy:
        proxy.open = lambda target, headers: _Whole()  # type: ignore[method-assign]
        proxy.upstream.open = proxy.open
        yield proxy


def test_one_file_is_kept_once_however_it_is_asked_for(whole: _Proxy) -> None:
    for target in (
        "/pool/a.deb",
        "/pool/a.deb?x=1",
        "/pool/a.deb?x=2",
        "/pool//a.deb",
        "/pool/%61.deb",
        "/pool/a.deb#1",
    ):
        assert asked(whole, target) == b"x" * 1000
    assert len(list(whole.kept.iterdir())) == 1
    assert asked(whole, "/pool/Packages?a.deb") == b"x" * 1000
    assert len(list(whole.kept.iterdir())) == 1, "what may change is not kept"


def test_what_is_kept_has_a_limit_and_what_was_not_asked_for_longest_goes(
    whole: _Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "MOST_KEPT", 2500)
    paths = [packages.kept_as(whole.kept, f"http://mirror.example/{number}.deb") for number in range(3)]
    for number in (0, 1):
        asked(whole, f"/{number}.deb")
        os.utime(str(paths[number]), (1e9 + number,) * 2)
    asked(whole, "/0.deb")
    asked(whole, "/2.deb")
    assert set(whole.kept.iterdir()) == {paths[0], paths[2]}


def test_a_disk_that_fills_up_keeps_nothing_more(whole: _Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "LEAST_FREE", 1 << 60)
    assert asked(whole, "/a.deb") == b"x" * 1000
    assert list(whole.kept.iterdir()) == []


def test_what_an_ended_proxy_left_goes_and_what_another_writes_stays(tmp_path: Path) -> None:
    left, written, kept = tmp_path / ".left", tmp_path / ".written", tmp_path / "kept"
    for file in (left, written, kept):
        file.touch()
    long_ago = time.time() - packages.LEFT_SECONDS - 1
    for file in (left, kept):
        os.utime(file, (long_ago, long_ago))
    packages.remove_left_parts(tmp_path)
    assert sorted(tmp_path.iterdir()) == [written, kept]
