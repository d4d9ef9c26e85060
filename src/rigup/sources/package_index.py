"""The files of Python packages on the index that pip is configured for on this machine.

Queries the index by the simple repository API (PEP 503 and PEP 691: HTML or JSON) and parses its pages with
pypi-simple. rigup does not download with pip, because pip would run the package's setup code to read its metadata.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import requests
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version
from pypi_simple import ACCEPT_ANY, DistributionPackage, UnsupportedRepoVersionError
from pypi_simple.html_stream import LinkParser

from rigup.errors import InputError, MissingTool, Unreachable
from rigup.sources.bounded_http import BoundedSession, BoundExceeded, read_json, require_time, time_limit
from rigup.sources.downloads import LARGEST_DOWNLOAD, LENGTH

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
    """A file on the index. url: absolute. sha256, uploaded: as the index states them, None if it does not.

    bytes: 0 if unknown.
    """

    name: str
    url: str
    sha256: str | None
    bytes: int = 0
    uploaded: datetime | None = None


def find_sdist(project: str, version: str) -> str:
    """The URL of the sdist of one release.

    Raises InputError if the release does not exist or has no sdist, and Unreachable if the index does not respond.
    """
    try:
        wanted = (canonicalize_name(project, validate=True), Version(version))
    except ValueError:
        raise InputError(f"pypi:{project}=={version}: not a package and version") from None
    for file in project_files(wanted[0], f"pypi:{project}=={version}", yanked=True):
        with suppress(InvalidSdistFilename, InvalidVersion):
            if parse_sdist_filename(file.name) == wanted:
                return file.url
    hint = "see which index pip uses: pip config get global.index-url"
    raise InputError(f"pypi:{project}=={version}: pip's package index has no sdist of it", hint)


def project_files(project: str, what: str | None = None, yanked: bool = False) -> tuple[IndexFile, ...]:
    """All files of a project on the index; () if the index does not know the project.

    yanked: include yanked files, which a lock may already pin. what: starts the messages, instead of the project.
    Raises Unreachable if the index does not respond or the server is not a package index.
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


def together(files: Iterable[IndexFile]) -> int:
    """Bytes of all these files; 0, which is unknown, unless the size of each is known.

    Pages in HTML have no sizes: asks the server of such a file for its length, and no further if one does not tell it.
    """
    total = 0
    with time_limit(PAGE_S), index_session(LARGEST_PAGE) as session:
        for file in files:
            size = file.bytes or _length(session, file.url)
            if not 0 < size <= LARGEST_DOWNLOAD:
                return 0
            total += size
    return total


def _length(session: requests.Session, url: str) -> int:
    """The bytes of a file as its server states them; 0 if it does not."""
    try:
        answer = session.head(url, headers={"Accept-Encoding": "identity"}, timeout=TIMEOUT_S, allow_redirects=True)
    except requests.RequestException:
        return 0
    stated = answer.headers.get("Content-Length", "")
    return int(stated) if answer.ok and LENGTH.fullmatch(stated) else 0


def index_session(most_bytes: int) -> BoundedSession:
    """A session for the index and its files, with the certificates and the proxy of pip's configuration."""
    session, settings = BoundedSession(most_bytes), pip_settings()
    if certificates := settings.get("cert"):
        session.verify = certificates
    if proxy := settings.get("proxy"):
        session.proxies = {"http": proxy, "https": proxy}
        session.trust_env = False  # as in pip: its own proxy setting overrides the environment
    return session


def pip_settings() -> dict[str, str]:
    """pip's settings here ("index-url", "cert", "proxy"); the environment overrides files. Empty without pip.

    Reads `pip config list`, because `pip config get` of older versions ignores the file in PIP_CONFIG_FILE.
    """
    heeded = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k in ("HOME", "XDG_CONFIG_HOME")}
    return dict(_pip_settings(tuple(sorted(heeded.items()))))


@functools.lru_cache(maxsize=8)
def _pip_settings(environment: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Cached for each environment, because starting pip is slow."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    pairs = [line.partition("=") for line in done.stdout.splitlines()]
    # `pip config list` puts variables of the environment first; sort them last, so that they override files
    named = sorted(((key, value.strip("'")) for key, _, value in pairs), key=lambda pair: pair[0].startswith(":env:"))
    return {key.removeprefix(":env:.").removeprefix("global."): value for key, value in named}


def index_url() -> str:
    """The index that pip uses here: PIP_INDEX_URL, then pip's configuration, then its default."""
    if url := os.environ.get("PIP_INDEX_URL") or pip_settings().get("index-url"):
        return url
    done = subprocess.run([sys.executable, "-c", BUILT_IN], capture_output=True, text=True)
    if done.returncode == 0 and done.stdout.strip():
        return done.stdout.strip().splitlines()[-1]
    raise MissingTool(
        "cannot determine which package index pip uses", f"see its settings: {sys.executable} -m pip config debug"
    )


def find_links() -> tuple[Path, ...]:
    """The local folders in which pip looks for packages (its `find-links`)."""
    words = pip_settings().get("find-links", "").replace("\\n", " ").split()
    return tuple(Path(word.removeprefix("file://")) for word in words if Path(word.removeprefix("file://")).is_dir())


def _index_files(answer: requests.Response, yanked: bool) -> Iterator[IndexFile]:
    """The files on a project's page. Raises ValueError if the response is another kind of page."""
    kind = answer.headers.get("Content-Type", "text/html").partition(";")[0].strip().lower()
    if kind not in LINKS:
        raise ValueError("content type")
    for url, sha256, gone, uploaded in LINKS[kind](answer):
        require_time()
        name = file_name(url)
        stated = sha256.lower() if sha256 and SHA256.fullmatch(sha256) else None
        if FILE_NAME.fullmatch(name) and url.startswith(("https://", "http://")) and (yanked or not gone):
            yield IndexFile(name, url, stated, uploaded=uploaded)


Link = tuple[str, str | None, bool, datetime | None]
"""URL, sha256, whether it was yanked, and when it was uploaded."""


def _json_links(answer: requests.Response) -> Iterator[Link]:
    """For each file of a JSON page."""
    page = read_json(answer.content, MOST_VALUES)
    if not isinstance(page, dict) or not isinstance(page.get("files"), list):
        raise ValueError("no files")
    for entry in page["files"]:
        # pypi-simple separates versions from names with regular expressions that are slow for long names.
        if not isinstance(entry, dict) or len(str(entry.get("filename"))) > LONGEST_NAME:
            raise ValueError("filename")
        package = DistributionPackage.from_json_data(entry, base_url=answer.url)
        url = urllib.parse.urldefrag(package.url).url
        yield url, package.digests.get("sha256"), package.is_yanked, package.upload_time


def _html_links(answer: requests.Response) -> Iterator[Link]:
    """For each file of an HTML page, which does not tell when it was uploaded."""
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
        yield url, sha256, "data-yanked" in link.attrs, None


def file_name(url: str) -> str:
    """The last part of a URL's path."""
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])


class _LinkParser(LinkParser):
    """pypi-simple's parser, without the texts of links: nested links would multiply them."""

    def handle_data(self, data: str) -> None:
        pass


LINKS = {
    "application/vnd.pypi.simple.v1+json": _json_links,
    "application/vnd.pypi.simple.v1+html": _html_links,
    "text/html": _html_links,
}
