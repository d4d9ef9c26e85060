"""A model hub, asked from the controlling machine: the commit behind a revision, its files, and what is in small ones.

The token goes to the hub's own host and port alone: requests takes it away on a redirect to another.
"""

from __future__ import annotations

import hashlib
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests
from requests.auth import AuthBase

from rigup.errors import InputError, Unreachable
from rigup.fleet.patient_requests import ATTEMPTS, TIMEOUT_S, NoAnswer, backoff, name_of, patiently

MOST_PAGES = 1000
LARGEST = 2**28


@dataclass(frozen=True)
class HubFile:
    """One file of a repository: size in bytes, git's blob id, and its sha256 where the hub stores it apart."""

    path: str
    size: int
    blob: str
    sha256: str | None


class Hub:
    """One hub. `pause` is how it waits between tries, in seconds.

    Every method raises InputError for what the hub does not have or does not let this token read, and Unreachable where
    it cannot be asked.
    """

    def __init__(self, address: str, token: str | None = None, pause: Callable[[float], None] = time.sleep) -> None:
        self.address = address.rstrip("/")
        self.token = token
        self.pause = pause
        self.session = requests.Session()
        # An auth object, because requests would put what ~/.netrc says over a header of ours.
        self.session.auth = _Bearer(self.address, token) if token is not None else None

    @property
    def name(self) -> str:
        """How messages call it."""
        return name_of(self.address)

    def commit(self, repo: str, revision: str) -> str:
        """The commit that a branch, tag or commit of a repository is."""
        url = f"{self.address}/api/models/{repo}/revision/{urllib.parse.quote(revision, safe='')}"
        found = self._json(self._get(url, repo, revision))
        commit = found.get("sha") if isinstance(found, dict) else None
        if not isinstance(commit, str):
            raise self._nonsense()
        return commit

    def files(self, repo: str, commit: str) -> dict[str, HubFile]:
        """Every file of a repository at a commit, by path."""
        url: str | None = f"{self.address}/api/models/{repo}/tree/{commit}?recursive=true"
        found: dict[str, HubFile] = {}
        for _ in range(MOST_PAGES):
            if url is None:
                return found
            answer = self._get(url, repo, commit)
            found.update((file.path, file) for file in self._page(answer))
            following = answer.links.get("next", {}).get("url")
            url = urllib.parse.urljoin(url, following) if following else None
        raise self._nonsense()

    def content(self, repo: str, commit: str, file: HubFile) -> bytes:
        """What is in a small file, checked against what the listing says of it."""
        if file.size > LARGEST:
            raise InputError(
                f"{repo}: {file.path}: the hub gives no sha256 of it, and it is too large to read for that"
            )
        url = f"{self.address}/{repo}/resolve/{commit}/{urllib.parse.quote(file.path)}"
        for attempt in range(ATTEMPTS):
            content = self._get(url, repo, commit, file.path).content
            if _is(content, file):
                return content
            self.pause(backoff(attempt))
        raise Unreachable(
            f"{repo}: {file.path} arrives damaged from {self.name}, {ATTEMPTS} times", "is a proxy between?"
        )

    def _page(self, answer: requests.Response) -> list[HubFile]:
        """The files on one page of a listing."""
        entries = self._json(answer)
        if not isinstance(entries, list):
            raise self._nonsense()
        try:
            return [_file(entry) for entry in entries if entry["type"] == "file"]
        except (KeyError, TypeError, ValueError):
            raise self._nonsense() from None

    def _get(self, url: str, repo: str, revision: str, path: str = "") -> requests.Response:
        """One answer, after as many tries as the hub asks for within reason."""
        try:
            answer = patiently(
                lambda: self.session.get(url, timeout=TIMEOUT_S, headers={"Accept-Encoding": "identity"}), self.pause
            )
        except NoAnswer as problem:
            raise Unreachable(f"{repo}: the hub at {self.name} {problem}", self._reach_hint()) from None
        return self._accepted(answer, repo, revision, path)

    def _accepted(self, answer: requests.Response, repo: str, revision: str, path: str) -> requests.Response:
        """The answer, or what its status means to a person."""
        if answer.ok:
            return answer
        code, status = answer.headers.get("X-Error-Code", ""), answer.status_code
        if code == "GatedRepo" or status == 403:
            raise self._forbidden(repo)
        if status == 401 and "credentials" in answer.headers.get("X-Error-Message", ""):
            raise InputError(
                f"{repo}: the hub at {self.name} does not know the token",
                "is it whole, and of this hub? hub_token_file",
            )
        if code == "RevisionNotFound":
            raise InputError(
                f"{repo}: revision {revision} is gone from the hub at {self.name}",
                f"rigup lock --upgrade {repo} takes what main is now",
            )
        if code == "EntryNotFound":
            raise InputError(f"{repo}: {path} is gone from the hub at {self.name}", "the repository changed; try again")
        if status in (401, 404):
            # Without a token, the public hub answers 401 for private repositories and for those that do not exist.
            private = ", or it is private" if code == "" and status == 401 else ""
            raise InputError(
                f"{repo}: the hub at {self.name} has no such repository{private}",
                "is the name right? a private one wants hub_token_file in group_data",
            )
        raise Unreachable(f"{repo}: the hub at {self.name} answers HTTP {status}", self._reach_hint())

    def _forbidden(self, repo: str) -> InputError:
        if self.token is None:
            return InputError(
                f"{repo}: the hub at {self.name} wants a token for it",
                'accept its terms there, and write hub_token_file = "secrets/hub.token" in group_data',
            )
        return InputError(
            f"{repo}: the hub at {self.name} does not let this token read it",
            "accept its terms there with the account of the token, or name another as hub_token_file in group_data",
        )

    def _json(self, answer: requests.Response) -> Any:
        try:
            return answer.json()
        except requests.JSONDecodeError:
            raise self._nonsense() from None

    def _nonsense(self) -> Unreachable:
        return Unreachable(
            f"{self.name} does not answer as a model hub does", "is hub in group_data, or HF_ENDPOINT, right?"
        )

    def _reach_hint(self) -> str:
        return f"is this machine online? {self.name} comes from hub in group_data, HF_ENDPOINT, or the default"


class _Bearer(AuthBase):
    """Puts the token on requests to one origin."""

    def __init__(self, address: str, token: str) -> None:
        self.origin = urllib.parse.urlsplit(address)[:2]
        self.token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if urllib.parse.urlsplit(request.url or "")[:2] == self.origin:
            request.headers["Authorization"] = f"Bearer {self.token}"
        return request


def _file(entry: dict[str, Any]) -> HubFile:
    """One line of the listing. The size of what is stored apart is that of the file, not of the pointer to it."""
    lfs = entry.get("lfs")
    if lfs:
        return HubFile(str(entry["path"]), int(lfs["size"]), str(entry["oid"]), str(lfs["oid"]))
    return HubFile(str(entry["path"]), int(entry["size"]), str(entry["oid"]), None)


def _is(content: bytes, file: HubFile) -> bool:
    """Whether a content is that file, by the hash that the listing has of it."""
    if file.sha256 is not None:
        return hashlib.sha256(content).hexdigest() == file.sha256
    blob = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    blob.update(content)
    return blob.hexdigest() == file.blob
