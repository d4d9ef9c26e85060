"""A model hub, as the controlling machine queries it: the commit of a revision, the list of files, and small files.

huggingface_hub speaks the protocol. Its requests go through rigup's session, which limits them, sends the token only to
the hub's own host and port, and uses the proxies and certificates of the environment. Nothing is cached. rigup ignores
the token and the settings that the user has for huggingface_hub.
"""

import hashlib
import re
import time
import urllib.parse
from collections.abc import Callable
from typing import Annotated, TypeVar

import httpx2
import requests
from huggingface_hub import HfApi, RepoFile, constants, hf_hub_url, set_client_factory
from huggingface_hub.errors import HfHubHTTPError
from pydantic import Field
from pydantic.dataclasses import dataclass
from requests.auth import AuthBase

from rigup.artifacts import Sha256
from rigup.errors import InputError, Unreachable
from rigup.lock import LARGEST_FILE
from rigup.sources.bounded_http import read_json, time_limit
from rigup.sources.http_retry import ATTEMPTS, TIMEOUT_S, RetriesExhausted, Server, backoff, get_with_retry, is_part

MOST_PAGES = 1000
MOST_FILES = 100_000
LARGEST = 2**26
LARGEST_PAGE = 2**23
LARGEST_ERROR = 2**16
VALUES_OF_A_PAGE = 500_000
LISTING_S = 600.0
COMMIT = re.compile(r"[0-9a-f]{40}")
LONGEST_PATH = 4096
# What huggingface_hub raises if a response does not have the form that it expects.
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, RecursionError)

# Otherwise it first asks huggingface.co, whatever hub is set, which environment variables it should report.
constants.HF_HUB_DISABLE_TELEMETRY = True

T = TypeVar("T")


@dataclass(frozen=True)
class HubFile:
    """One file of a repository: size in bytes, git blob id, and sha256 if the hub stores the file outside git.

    Raises ValueError for an invalid value, because huggingface_hub accepts any.
    """

    path: Annotated[str, Field(min_length=1, max_length=LONGEST_PATH)]
    size: Annotated[int, Field(ge=0, le=LARGEST_FILE, strict=True)]
    blob: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    sha256: Sha256 | None


class Hub(Server):
    """One hub. `pause` waits between attempts, for a number of seconds.

    Every method raises InputError if the hub does not have the item or does not let this token read it, and Unreachable
    if the hub does not respond.
    """

    kind = "hub"
    comes_from = "hub in group_data, HF_ENDPOINT"

    def __init__(self, address: str, token: str | None = None, pause: Callable[[float], None] = time.sleep) -> None:
        super().__init__(address, pause)
        self.token = token
        # An auth object, because requests replaces a plain header with the login from ~/.netrc.
        self.auth = _Bearer(self.address, token) if token is not None else None

    def commit(self, repo: str, revision: str) -> str:
        """The commit of a branch, tag or commit of a repository."""
        found = self._ask(lambda api: api.model_info(repo, revision=revision).sha, dict, repo, revision)
        if not isinstance(found, str) or not COMMIT.fullmatch(found):
            raise self._malformed_response()
        return found

    def files(self, repo: str, commit: str) -> dict[str, HubFile]:
        """Every file of a repository at a commit, by path."""
        return self._ask(lambda api: _files(api, repo, commit), list, repo, commit)

    def content(self, repo: str, commit: str, file: HubFile) -> bytes:
        """The content of a small file, checked against the hash in the listing."""
        if file.size > LARGEST:
            raise InputError(f"{repo}: {file.path}: the hub has no sha256 for it, and it is too large to compute one")
        url = self.url(repo, commit, file.path)
        for attempt in range(ATTEMPTS):
            try:
                answer = _get(self._session(max(file.size, LARGEST_ERROR)), url, self.pause)
            except RetriesExhausted as problem:
                raise self.unreachable(repo, problem) from None
            if not answer.ok:
                raise self._refusal(answer, repo, commit, file.path)
            if _is(answer.content, file):
                return answer.content
            self.pause(backoff(attempt))
        raise Unreachable(
            f"{repo}: {file.path} from {self.name} does not match its checksum after {ATTEMPTS} attempts",
            "bypass any proxy that may alter downloads",
        )

    def part(self, repo: str, commit: str, file: HubFile, start: int, count: int) -> bytes:
        """`count` bytes of a file from `start`, `LARGEST_PART` at most. Each thread keeps its connection."""
        answer = self.get_part(repo, self.url(repo, commit, file.path), file.size, start, count)
        if not answer.ok:
            raise self._refusal(answer, repo, commit, file.path)
        if not is_part(answer, file.size, start, count):
            raise self.unreachable(f"{repo}: {file.path}", "sent a different part than requested")
        return answer.content

    def url(self, repo: str, commit: str, path: str) -> str:
        """The download URL of a file."""
        return hf_hub_url(repo, path, revision=commit, endpoint=self.address)

    def _ask(self, question: Callable[[HfApi], T], expected: type, repo: str, revision: str) -> T:
        """Asks huggingface_hub a question. expected: the type that the JSON of every page must have."""
        session = self._session(LARGEST_PAGE)
        set_client_factory(lambda: httpx2.Client(transport=_Transport(session, expected, self.pause)))
        try:
            with time_limit(LISTING_S):
                # False keeps huggingface_hub from using the token of the user's own login.
                return question(HfApi(self.address, token=False))
        except RetriesExhausted as problem:
            raise self.unreachable(repo, problem) from None
        except HfHubHTTPError as error:
            raise self._refusal(error.response, repo, revision) from None
        except MALFORMED:
            raise self._malformed_response() from None
        finally:
            set_client_factory(_own_client)
            session.close()

    def _session(self, most_bytes: int) -> requests.Session:
        session = super()._session(most_bytes)
        session.auth = self.auth
        return session

    def _refusal(
        self, answer: httpx2.Response | requests.Response, repo: str, revision: str, path: str = ""
    ) -> InputError | Unreachable:
        """The error for the status of a response, in words for the user."""
        code, status = answer.headers.get("X-Error-Code", ""), answer.status_code
        if code == "GatedRepo" or status == 403:
            return self._forbidden(repo)
        if status == 401 and "credentials" in answer.headers.get("X-Error-Message", ""):
            return InputError(
                f"{repo}: the hub at {self.name} rejects the token",
                "check hub_token_file: the token must be complete and belong to this hub",
            )
        if code == "RevisionNotFound":
            return InputError(
                f"{repo}: revision {revision} no longer exists on the hub at {self.name}",
                f"lock the current main: rigup lock --upgrade {repo}",
            )
        if code == "EntryNotFound":
            return InputError(
                f"{repo}: {path} no longer exists on the hub at {self.name}",
                "run the same command again: the repository changed",
            )
        if status in (401, 404):
            # Without a token, the public hub answers 401 for private repositories and for those that do not exist.
            private = ", or it is private" if code == "" and status == 401 else ""
            return InputError(
                f"{repo}: the hub at {self.name} has no such repository{private}",
                "check the name; a private repository needs hub_token_file in group_data",
            )
        return self.unreachable(repo, f"answered HTTP {status}")

    def _forbidden(self, repo: str) -> InputError:
        if self.token is None:
            return InputError(
                f"{repo}: the hub at {self.name} requires a token for it",
                'accept its terms there, and set hub_token_file = "secrets/hub.token" in group_data',
            )
        return InputError(
            f"{repo}: the hub at {self.name} does not allow this token to read it",
            "accept its terms there with the account of the token, or set another hub_token_file in group_data",
        )

    def _malformed_response(self) -> Unreachable:
        return Unreachable(
            f"{self.name} is not a Hugging Face-compatible hub", "check hub in group_data or HF_ENDPOINT"
        )


class _Bearer(AuthBase):
    """Adds the token to requests to the hub's own origin."""

    def __init__(self, address: str, token: str) -> None:
        self.origin = urllib.parse.urlsplit(address)[:2]
        self.token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if urllib.parse.urlsplit(request.url or "")[:2] == self.origin:
            request.headers["Authorization"] = f"Bearer {self.token}"
        return request


class _Transport(httpx2.BaseTransport):
    """Carries the requests of huggingface_hub over rigup's session, with its retries, for up to `MOST_PAGES` pages."""

    def __init__(self, session: requests.Session, expected: type, pause: Callable[[float], None]) -> None:
        self._session = session
        self._expected = expected
        self._pause = pause
        self._requests = 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """The whole response, with only the headers that rigup uses."""
        self._requests += 1
        if self._requests > MOST_PAGES:
            raise ValueError("too many pages")
        answer = _get(self._session, str(request.url), self._pause)
        if answer.ok and not isinstance(read_json(answer.content, VALUES_OF_A_PAGE), self._expected):
            raise ValueError(f"not a {self._expected.__name__}")
        known = ("X-Error-Code", "X-Error-Message")
        headers = {name: answer.headers[name] for name in known if name in answer.headers}
        if following := answer.links.get("next", {}).get("url"):
            headers["Link"] = f'<{urllib.parse.urljoin(answer.url, following)}>; rel="next"'
        return httpx2.Response(answer.status_code, headers=headers, content=answer.content)


def _own_client() -> httpx2.Client:
    """The client that huggingface_hub creates by default, for other code in this process."""
    return httpx2.Client(follow_redirects=True, timeout=None)


def _get(session: requests.Session, url: str, pause: Callable[[float], None]) -> requests.Response:
    return get_with_retry(lambda: session.get(url, timeout=TIMEOUT_S), pause)


def _files(api: HfApi, repo: str, commit: str) -> dict[str, HubFile]:
    found: dict[str, HubFile] = {}
    for entry in api.list_repo_tree(repo, revision=commit, recursive=True):
        if isinstance(entry, RepoFile):
            # For a file in LFS, the size is that of the file, not of its pointer.
            size, sha256 = (entry.lfs.size, entry.lfs.sha256) if entry.lfs else (entry.size, None)
            found[entry.path] = HubFile(entry.path, size, entry.blob_id, sha256)
        if len(found) > MOST_FILES:
            raise ValueError("too many files")
    return found


def _is(content: bytes, file: HubFile) -> bool:
    """Whether the content has the hash that the listing states."""
    if file.sha256 is not None:
        return hashlib.sha256(content).hexdigest() == file.sha256
    blob = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    blob.update(content)
    return blob.hexdigest() == file.blob
