"""`rigup lock --upgrade llama.cpp=bN` for builds that the catalogue does not have, at a file server on loopback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.option_names import known_options
from rigup.lockfile import resolver as lock_resolving
from rigup.project.planning import plan_project
from rigup.sources import archives
from tests.serving import serving
from tests.unit.catalogue.engine_packages.test_reading import LLAMA_CPP, archive
from tests.unit.lockfile.test_lock import IQ2_M, Fleet, fleet, quad

__all__ = ["fleet", "quad"]

ADDRESS = "https://github.com/ggml-org/llama.cpp/archive/refs/tags/"
NEW = "b11549"


class Forge(ThreadingHTTPServer):
    """The archives of tags, by build, as GitHub has them."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.archives: dict[str, bytes] = {}
        self.asked: list[str] = []

    def hold(self, build: str, members: dict[str, str]) -> None:
        self.archives[build] = archive(self.folder, members, f"llama.cpp-{build}").read_bytes()

    def local(self, engine: str, version: str, address: str) -> str:
        assert (engine, address) == ("llama.cpp", f"{ADDRESS}{version}.tar.gz")
        return f"http://127.0.0.1:{self.server_address[1]}/{version}"


class Handler(BaseHTTPRequestHandler):
    server: Forge

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        content = self.server.archives.get(self.path.lstrip("/"))
        self.send_response(200 if content else 404)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")


def arg_cpp(*more: str) -> str:
    """A table of arguments with the options that rigup's own commands need, and some more."""
    names = (*sorted(known_options("llama.cpp", "b11434")), *more)
    return "\n".join(f'add_opt(common_arg({{"{name}"}}, "help", handler));' for name in names)


MEMBERS = {
    **LLAMA_CPP,
    "common/arg.cpp": arg_cpp("--brand-new"),
    "src/llama-arch.cpp": LLAMA_CPP["src/llama-arch.cpp"].replace('"llama"', '"minimax-m2"'),
}


@pytest.fixture
def forge(quad: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Forge]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    quad.lock()
    monkeypatch.setattr(lock_resolving, "pin_source", archives.pin_source)
    with serving(Forge(tmp_path)) as forge:
        monkeypatch.setattr(archives, "source_url", forge.local)
        yield forge


def test_a_build_is_read_from_its_archive_and_kept_by_the_fleet(quad: Fleet, forge: Forge) -> None:
    forge.hold(NEW, MEMBERS)
    lock = quad.lock(upgrade=f"llama.cpp={NEW}")
    assert lock.engines == {"llama.cpp": NEW}
    source = lock.source("llama.cpp", NEW)
    assert source is not None
    assert (source.address, source.root) == (f"{ADDRESS}{NEW}.tar.gz", f"llama.cpp-{NEW}")
    assert forge.asked == [f"/{NEW}"], "the archive is downloaded once"
    assert (quad.root / f"catalogue/engines/llama.cpp-{NEW}.toml").read_text() == (
        f"# Written by rigup lock --upgrade llama.cpp={NEW}. cuda: that of the release before it.\n"
        f'name = "llama.cpp"\n\n[[versions]]\nversion = "{NEW}"\ncuda = "13.0"\n'
    )
    catalogue = load_catalogue(quad.root)
    (names,) = catalogue.name_lists
    assert (names.version, names.sha256, "--brand-new" in names.options) == (NEW, source.sha256, True)
    release = catalogue.engines_by_name["llama.cpp"].version(NEW)
    assert release is not None
    assert (release.abilities.names("architectures"), release.abilities.names("quantizations")) == (
        {"minimax-m2", "grok"},
        {"q4_K"},
    )
    (plan, _) = plan_project(quad.project())
    assert plan.verdict == "ok"
    assert plan.build is not None
    assert (plan.build.version, plan.build.sha256) == (NEW, source.sha256)
    assert {f"-DLLAMA_BUILD_NUMBER={NEW[1:]}", f"-DLLAMA_BUILD_COMMIT={NEW}"} <= set(plan.build.flags)
    assert quad.stale() == ()
    assert quad.lock() == lock
    assert len(forge.asked) == 1


def test_plans_know_the_options_of_the_build(quad: Fleet, forge: Forge) -> None:
    forge.hold(NEW, MEMBERS)
    quad.lock(upgrade=f"llama.cpp={NEW}")
    quad.describe({**IQ2_M, "flags": {"--brand-new": "1"}})
    (plan, _) = plan_project(quad.project())
    assert plan.verdict == "ok"
    assert "--brand-new" in plan.command
    quad.describe({**IQ2_M, "flags": {"--brand-old": "1"}})
    (plan, _) = plan_project(quad.project())
    assert [finding.rule for finding in plan.refusals] == ["unknown-option"]


def test_a_build_without_the_models_architecture_is_not_taken(quad: Fleet, forge: Forge) -> None:
    forge.hold(NEW, {**MEMBERS, "src/llama-arch.cpp": LLAMA_CPP["src/llama-arch.cpp"]})
    error = quad.refusal(upgrade=f"llama.cpp={NEW}")
    assert error.message.startswith(
        f"--upgrade llama.cpp={NEW}: a.lan: chat would be refused: llama.cpp {NEW} has no architecture `minimax-m2`; "
    )
    assert error.message.endswith("[model-support]")
    assert not (quad.root / "catalogue").exists()


def test_a_service_may_name_the_build_before_it_is_added(quad: Fleet, forge: Forge) -> None:
    forge.hold(NEW, MEMBERS)
    quad.describe({**IQ2_M, "version": NEW})
    error = quad.refusal()
    assert f'services.chat.version: llama.cpp "{NEW}" is not supported' in error.message
    assert error.hint == f"versions: b11434; to add this build: rigup lock --upgrade llama.cpp={NEW}"
    assert quad.lock(upgrade=f"llama.cpp={NEW}").source("llama.cpp", NEW)


WHERE = rf"--upgrade llama.cpp={NEW}: llama.cpp {NEW}: {ADDRESS}{NEW}.tar.gz: "
READ = rf"--upgrade llama.cpp={NEW}: {ADDRESS}{NEW}.tar.gz: cannot read "
TESTED = "use a version that rigup has been tested with"


@pytest.mark.parametrize(
    ("content", "beginning", "what", "hint"),
    [
        pytest.param(None, WHERE, "HTTP 404", "check that the URL is still valid", id="unknown"),
        pytest.param(b"<html>", WHERE, "not a tar", "check the URL", id="page"),
        pytest.param({"README.md": ""}, READ, " common/arg.cpp", TESTED, id="without"),
        pytest.param({**MEMBERS, "common/arg.cpp": "int main;"}, READ, "add_opt in common/arg.cpp", TESTED, id="empty"),
        pytest.param({**MEMBERS, "common/arg.cpp": "add_opt(common_arg("}, READ, "bracket", TESTED, id="open"),
        pytest.param(
            {**MEMBERS, "common/arg.cpp": 'add_opt(common_arg({"--\x1b[2J"}, x));'},
            READ,
            r"'--\x1b[2J'",
            TESTED,
            id="control",
        ),
        pytest.param(-200, READ, "Compressed file ended before the end-of-stream", TESTED, id="truncated"),
    ],
)
def test_archives_that_cannot_be_read(
    quad: Fleet, forge: Forge, content: dict[str, str] | bytes | int | None, beginning: str, what: str, hint: str
) -> None:
    if isinstance(content, bytes):
        forge.archives[NEW] = content
    elif content is not None:
        forge.hold(NEW, MEMBERS if isinstance(content, int) else content)
    if isinstance(content, int):
        forge.archives[NEW] = forge.archives[NEW][:content]
    error = quad.refusal(upgrade=f"llama.cpp={NEW}")
    assert (error.hint, error.exit_code) == (hint, 2)
    assert error.message.startswith(beginning) and what in error.message.removeprefix(beginning)
    assert not (quad.root / "catalogue").exists()


@pytest.mark.parametrize("version", ["b0", "b-1", "B11549", "b11549/../x", "b1234567890", "latest", "11549"])
def test_what_is_not_a_build_of_llama_cpp(quad: Fleet, forge: Forge, version: str) -> None:
    error = quad.refusal(upgrade=f"llama.cpp={version}")
    assert error.message == f"--upgrade llama.cpp={version}: llama.cpp {version} is not supported"
    assert re.fullmatch(r"versions: b11434; .* like b11434.*", str(error.hint))
    assert forge.asked == []
