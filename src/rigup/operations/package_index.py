"""Where the sdist of a Python package lies, on the index that pip is configured for on this machine.

Asks the index by the simple repository API (PEP 503 and PEP 691: HTML or JSON). pip itself is not used to download: it
would run the package's own setup code to learn its metadata.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.parse
from html.parser import HTMLParser

import requests
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from rigup.errors import InputError, MissingTool, Unreachable

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
TIMEOUT_S = 30
BUILT_IN = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


def find_sdist(project: str, version: str) -> str:
    """The URL of the sdist of one release.

    Raises InputError for what is no release or is not on the index, and Unreachable where the index does not answer.
    """
    try:
        wanted = (canonicalize_name(project, validate=True), Version(version))
    except ValueError:
        raise InputError(f"pypi:{project}=={version}: not a package and version") from None
    page = f"{index_url().rstrip('/')}/{wanted[0]}/"
    try:
        answer = requests.get(page, headers={"Accept": ACCEPT}, timeout=TIMEOUT_S)
        if answer.status_code != 404:
            answer.raise_for_status()
    except requests.RequestException as error:
        status = f" (HTTP {error.response.status_code})" if error.response is not None else ""
        hint = "is this machine online? pip config get global.index-url"
        raise Unreachable(f"pypi:{project}=={version}: pip's package index cannot be asked{status}", hint) from None
    links = file_links(answer) if answer.ok else []
    for link in links:
        if _release(link) == wanted:
            return link
    hint = "pip config get global.index-url names the index that was asked"
    raise InputError(f"pypi:{project}=={version}: pip's package index has no sdist of it", hint)


def pip_settings() -> dict[str, str]:
    """pip's own settings here ("index-url", "cert", "proxy"), environment over files; empty where there is no pip.

    Read from `pip config list`: the `get` of older pips does not see a file that PIP_CONFIG_FILE names.
    """
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
    if answer.headers.get("Content-Type", "").startswith("application/vnd.pypi.simple.v1+json"):
        found = [str(file["url"]) for file in answer.json()["files"]]
    else:
        page = _Links()
        page.feed(answer.text)
        found = page.found
    return [urllib.parse.urldefrag(urllib.parse.urljoin(answer.url, link)).url for link in found]


def _release(link: str) -> tuple[str, Version] | None:
    name = urllib.parse.unquote(urllib.parse.urlsplit(link).path.rpartition("/")[2])
    try:
        return parse_sdist_filename(name)
    except (InvalidSdistFilename, InvalidVersion):
        return None


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for key, value in attrs if tag == "a" and key == "href" and value]
