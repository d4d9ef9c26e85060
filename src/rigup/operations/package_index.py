"""The files of Python packages, on the index that pip is configured for on this machine.

Asks the index by the simple repository API (PEP 503 and PEP 691: HTML or JSON). pip itself is not used to download: it
would run the package's own setup code to learn its metadata.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import requests
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from rigup.errors import InputError, MissingTool, Unreachable

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
TIMEOUT_S = 30
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
    hint = "pip config get global.index-url names the index that was asked"
    raise InputError(f"pypi:{project}=={version}: pip's package index has no sdist of it", hint)


def project_files(project: str, what: str | None = None, yanked: bool = False) -> tuple[IndexFile, ...]:
    """Every file that the index has of a project; () where it does not know the project.

    yanked: with those that their makers took back, which is for files that are pinned already. what: what messages
    begin with, instead of the project. Raises Unreachable where the index does not answer.
    """
    page = f"{index_url().rstrip('/')}/{canonicalize_name(project)}/"
    try:
        answer = requests.get(page, headers={"Accept": ACCEPT}, timeout=TIMEOUT_S)
        if answer.status_code != 404:
            answer.raise_for_status()
    except requests.RequestException as error:
        status = f" (HTTP {error.response.status_code})" if error.response is not None else ""
        hint = "is this machine online? pip config get global.index-url"
        raise Unreachable(f"{what or project}: pip's package index cannot be asked{status}", hint) from None
    return tuple(_index_files(answer, yanked)) if answer.ok else ()


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
    raise MissingTool("pip does not say which package index it uses", f"{sys.executable} -m pip config debug")


def file_links(answer: requests.Response) -> list[str]:
    """The addresses of the files on a project's page, absolute and without the hash that may follow."""
    return [file.url for file in _index_files(answer, yanked=True)]


def find_links() -> tuple[Path, ...]:
    """The folders of this machine that pip looks for packages in (its `find-links`)."""
    words = pip_settings().get("find-links", "").replace("\\n", " ").split()
    return tuple(Path(word.removeprefix("file://")) for word in words if Path(word.removeprefix("file://")).is_dir())


def _index_files(answer: requests.Response, yanked: bool = False) -> Iterator[IndexFile]:
    if answer.headers.get("Content-Type", "").startswith("application/vnd.pypi.simple.v1+json"):
        listed = answer.json()["files"]
        found = [(str(e["url"]), e.get("hashes", {}).get("sha256"), e.get("yanked", False)) for e in listed]
    else:
        page = _Links()
        page.feed(answer.text)
        found = page.found
    for link, sha256, gone in found:
        url, fragment = urllib.parse.urldefrag(urllib.parse.urljoin(answer.url, link))
        stated = sha256 or (fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None)
        if yanked or gone is False:
            yield IndexFile(file_name(url), url, stated)


def file_name(url: str) -> str:
    """The last part of a URL's path."""
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])


def _release(name: str) -> tuple[str, Version] | None:
    try:
        return parse_sdist_filename(name)
    except (InvalidSdistFilename, InvalidVersion):
        return None


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str | None, object]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            self.found.append((str(given["href"]), None, "data-yanked" in given))
