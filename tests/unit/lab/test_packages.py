"""What the package proxy offers, and what this machine's settings say. No registry is asked."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rigup.lab import registries, upstream
from rigup.lab.upstream import Upstream
from tests.serving import serving

DEB822 = """\
Types: deb
# http://old.example/debian
URIs: https://mirror.example/debian/
Suites: bookworm bookworm-updates
"""


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose apt reads its archive over https, and whose pip and proxies are set to nothing."""
    monkeypatch.setattr(registries, "uris", lambda: ["https://mirror.example/debian"])
    monkeypatch.setattr(registries, "pip_settings", dict[str, str])
    monkeypatch.setattr(registries, "apt_proxies", dict[str, str])


def test_apt_sources_are_read_in_both_formats(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(
        "# deb http://commented.example/debian bookworm main\n"
        "deb [signed-by=/x.gpg] http://security.example/debian-security bookworm-security main\n"
    )
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(DEB822)
    found = registries.uris(tmp_path)
    assert found == ["http://security.example/debian-security", "https://mirror.example/debian"]
    assert registries.debian_mirrors(found) == (
        "https://mirror.example/debian",
        "http://security.example/debian-security",
    )
    assert registries.debian_mirrors(["http://archive.example/ubuntu"]) is None


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
    assert upstream.without_login("https://a:b%40c@host:8/simple") == ("https://host:8/simple", "Basic YTpiQGM=")
    assert upstream.without_login("https://host/simple") == ("https://host/simple", "")
