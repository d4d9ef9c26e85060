"""The files of Python packages, on the index that pip is configured for on this machine.

Asks the index by the simple repository API (PEP 503 and PEP 691: HTML or JSON), whose pages pypi-simple reads. pip
itself is not used to download: it would run the package's own setup code to learn its metadata.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import requests
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version
from pypi_simple import ACCEPT_ANY, DistributionPackage, UnsupportedRepoVersionError
from pypi_simple.html_stream import LinkParser

from rigup.errors import InputError, MissingTool, Unreachable
from rigup.sources.bounded_http import BoundedSession, BoundExceeded, read_json, require_time, time_limit

TIMEOUT_S = 30
PAGE_S = 120.0
LARGEST_PAGE = 2**26
MOST_VALUES = 2_000_000
MOST_TAGS = 200_000
LONGEST_NAME = 255
PIECE = 4096
SHA256 = re.compile(r"[0-9a-fA-F]{64}")
FILE_NAME = re.compile(r"[\w.!+-]{1,255}", re.ASCII)
BUILT_IN = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


@dataclass(frozen=True)
class IndexFile:
    """A file on the index. url: absolute. sha256: as the index states it, None where it states none."""

    name: str
    url: str
    sha256: str | None


def find_sdist(project: str, version: str) -> str:
    """The URL of the sdist of one release.

    Raises InputError for what is no release or is not on the index, and Unreachable where the index does not answer.
    """
    try:
        wanted = (canonicalize_name(project, validate=True), Version(version))
    except ValueError:
        raise InputError(f"pypi:{project}=={version}: not a package and version") from None
    for file in project_files(wanted[0], f"pypi:{project}=={version}", yanked=True):
        if _release(file.name) == wanted:
            return file.url
    hint = "see which index pip uses: pip config get global.index-url"
    raise InputError(f"pypi:{project}=={version}: pip's package index has no sdist of it", hint)


def project_files(project: str, what: str | None = None, yanked: bool = False) -> tuple[IndexFile, ...]:
    """Every file that the index has of a project; () where it does not know the project.

    yanked: with those that their makers took back, which is for files that are pinned already. what: what messages
    begin with, instead of the project. Raises Unreachable where the index does not answer, or not as an index does.
    """
    page = f"{index_url().rstrip('/')}/{canonicalize_name(project)}/"
    asked = what or project
    hint = "check that this machine is online and which index pip uses: pip config get global.index-url"
    try:
        with time_limit(PAGE_S), index_session(LARGEST_PAGE) as session:
            answer = session.get(page, headers={"Accept": ACCEPT_ANY}, timeout=TIMEOUT_S)
            if answer.status_code == 404:
                return ()
            answer.raise_for_status()
            return tuple(_index_files(answer, yanked))
    except BoundExceeded as error:
        raise Unreachable(f"{asked}: pip's package index {error}", hint) from None
    except requests.RequestException as error:
        status = f" (HTTP {error.response.status_code})" if error.response is not None else ""
        raise Unreachable(f"{asked}: cannot query pip's package index{status}", hint) from None
    except (ValueError, UnsupportedRepoVersionError):
        message = f"{asked}: the server is not a package index"
        raise Unreachable(message, "see which index pip uses: pip config get global.index-url") from None


def index_session(most_bytes: int) -> BoundedSession:
    """A session with the index and where its files lie, with the certificates and the proxy that pip is set up for."""
    session, settings = BoundedSession(most_bytes), pip_settings()
    if certificates := settings.get("cert"):
        session.verify = certificates
    if proxy := settings.get("proxy"):
        session.proxies = {"http": proxy, "https": proxy}
        session.trust_env = False  # as pip does: what it is told goes over the environment
    return session


def pip_settings() -> dict[str, str]:
    """pip's own settings here ("index-url", "cert", "proxy"), environment over files; empty where there is no pip.

    Read from `pip config list`: the `get` of older pips does not see a file that PIP_CONFIG_FILE names.
    """
    heeded = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k in ("HOME", "XDG_CONFIG_HOME")}
    return dict(_pip_settings(tuple(sorted(heeded.items()))))


@functools.lru_cache(maxsize=8)
def _pip_settings(environment: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Asked once for each environment: starting pip takes longer than most of what rigup does with the answer."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    pairs = [line.partition("=") for line in done.stdout.splitlines()]
    # the environment's own come first in the list and are taken last
    named = sorted(((key, value.strip("'")) for key, _, value in pairs), key=lambda pair: pair[0].startswith(":env:"))
    return {key.removeprefix(":env:.").removeprefix("global."): value for key, value in named}


def index_url() -> str:
    """The index that pip uses here: its configuration, PIP_INDEX_URL first, else its own default."""
    if url := os.environ.get("PIP_INDEX_URL") or pip_settings().get("index-url"):
        return url
    done = subprocess.run([sys.executable, "-c", BUILT_IN], capture_output=True, text=True)
    if done.returncode == 0 and done.stdout.strip():
        return done.stdout.strip().splitlines()[-1]
    raise MissingTool(
        "cannot determine which package index pip uses", f"see its settings: {sys.executable} -m pip config debug"
    )


def find_links() -> tuple[Path, ...]:
    """The folders of this machine that pip looks for packages in (its `find-links`)."""
    words = pip_settings().get("find-links", "").replace("\\n", " ").split()
    return tuple(Path(word.removeprefix("file://")) for word in words if Path(word.removeprefix("file://")).is_dir())


def _index_files(answer: requests.Response, yanked: bool) -> Iterator[IndexFile]:
    """Raises ValueError for what is no project's page."""
    kind = answer.headers.get("Content-Type", "text/html").partition(";")[0].strip().lower()
    if kind not in LINKS:
        raise ValueError("content type")
    for url, sha256, gone in LINKS[kind](answer):
        require_time()
        name = file_name(url)
        stated = sha256.lower() if sha256 and SHA256.fullmatch(sha256) else None
        if FILE_NAME.fullmatch(name) and url.startswith(("https://", "http://")) and (yanked or not gone):
            yield IndexFile(name, url, stated)


def _json_links(answer: requests.Response) -> Iterator[tuple[str, str | None, bool]]:
    """URL, sha256 and whether it was yanked, of each file of a page in JSON."""
    page = read_json(answer.content, MOST_VALUES)
    if not isinstance(page, dict) or not isinstance(page.get("files"), list):
        raise ValueError("no files")
    for entry in page["files"]:
        # pypi-simple tells versions from names by expressions that take long for a long name.
        if not isinstance(entry, dict) or len(str(entry.get("filename"))) > LONGEST_NAME:
            raise ValueError("filename")
        package = DistributionPackage.from_json_data(entry, base_url=answer.url)
        yield urllib.parse.urldefrag(package.url).url, package.digests.get("sha256"), package.is_yanked


def _html_links(answer: requests.Response) -> Iterator[tuple[str, str | None, bool]]:
    """The same of a page in HTML."""
    text = answer.content.decode(errors="replace")
    if text.count("<") > MOST_TAGS:
        raise ValueError("too many tags")
    parser = _LinkParser(answer.url)
    for start in range(0, len(text), PIECE):
        require_time()
        parser.feed(text[start : start + PIECE])
    parser.close()
    for link in parser.fetch_links():
        url, fragment = urllib.parse.urldefrag(link.url)
        sha256 = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
        yield url, sha256, "data-yanked" in link.attrs


def file_name(url: str) -> str:
    """The last part of a URL's path."""
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])


def _release(name: str) -> tuple[str, Version] | None:
    try:
        return parse_sdist_filename(name)
    except (InvalidSdistFilename, InvalidVersion):
        return None


class _LinkParser(LinkParser):
    """pypi-simple's, without the texts of links: links within links would multiply them."""

    def handle_data(self, data: str) -> None:
        pass


LINKS = {
    "application/vnd.pypi.simple.v1+json": _json_links,
    "application/vnd.pypi.simple.v1+html": _html_links,
    "text/html": _html_links,
}
