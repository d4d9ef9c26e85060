"""Requests from the controlling machine to servers on the network, with limited retries if a server is busy or down.

Messages name only the host and port of a server, because the rest of the address may contain a password.
"""

from __future__ import annotations

import re
import threading
import time
import urllib.parse
from collections.abc import Callable
from email.utils import parsedate_to_datetime

import requests

from rigup import __version__
from rigup.errors import Unreachable
from rigup.sources.bounded_http import BoundedSession, BoundExceeded, time_limit

TIMEOUT_S = (20, 60)
ATTEMPTS = 5
PATIENCE_S = 90.0
EXCHANGE_S = 180.0
LARGEST_PART = 2**22
RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


class RetriesExhausted(Exception):
    """Raised after the last attempt. The text says what the server did and follows the server's name in a message."""


class Server:
    """A server that is asked with retries, and its name in messages. `pause` waits for a number of seconds.

    kind: what messages call it. comes_from: where its address may come from, for the hint.
    """

    kind = "server"
    comes_from = "group_data"

    def __init__(self, address: str, pause: Callable[[float], None]) -> None:
        self.address = address.rstrip("/")
        self.pause = pause
        self._kept = threading.local()

    @property
    def name(self) -> str:
        """The name of the server in messages."""
        return name_of(self.address)

    def unreachable(self, what: str, problem: object) -> Unreachable:
        """The error for what the server did with a request. what: that was requested."""
        hint = f"check that this machine is online; {self.name} comes from {self.comes_from}, or the default"
        return Unreachable(f"{what}: the {self.kind} at {self.name} {problem}", hint)

    def get_part(self, what: str, url: str, size: int, start: int, count: int) -> requests.Response:
        """The answer to a request for `count` bytes from `start` of a file of `size` bytes. Raises Unreachable.

        Each thread keeps its connection.
        """
        if not hasattr(self._kept, "session"):
            self._kept.session = self._session(LARGEST_PART)
        session: requests.Session = self._kept.session

        def ask() -> requests.Response:
            wanted = {"Range": f"bytes={start}-{start + count - 1}"}
            with session.get(url, headers=wanted, timeout=TIMEOUT_S, stream=True) as answer:
                if answer.status_code == 200 and (start, count) != (0, size):
                    raise BoundExceeded("sends whole files where a part is requested")
                answer.content  # noqa: B018  read here, so that a failure is tried again
                return answer

        try:
            return get_with_retry(ask, self.pause)
        except RetriesExhausted as problem:
            raise self.unreachable(what, problem) from None

    def _session(self, most_bytes: int) -> requests.Session:
        """A session for this server."""
        session = BoundedSession(most_bytes)
        session.headers.update({"Accept-Encoding": "identity", "User-Agent": f"rigup/{__version__}"})
        return session


def get_with_retry(ask: Callable[[], requests.Response], pause: Callable[[float], None]) -> requests.Response:
    """The first response that a retry would not change, which may be an error. Waits as the server asks, within limits.

    ask: reads a whole response. pause: waits for a number of seconds. Takes at most `EXCHANGE_S` seconds. Raises
    RetriesExhausted.
    """
    waited, problem = 0.0, "cannot be reached"
    with time_limit(EXCHANGE_S):
        for attempt in range(ATTEMPTS):
            try:
                answer = ask()
            except BoundExceeded as error:
                problem = str(error)
                break
            except requests.RequestException as error:
                problem, asked = _reason(error), None
            else:
                if answer.status_code not in TRANSIENT:
                    return answer
                limited = answer.status_code == 429
                problem = "limits the request rate" if limited else f"answered HTTP {answer.status_code}"
                asked = _retry_after(answer)
            wanted = backoff(attempt) if asked is None else asked
            if waited + wanted > PATIENCE_S:
                problem += f" and asks to wait {wanted:.0f} s"
                break
            if attempt < ATTEMPTS - 1:
                pause(wanted)
                waited += wanted
    raise RetriesExhausted(problem)


def is_part(answer: requests.Response, size: int, start: int, count: int) -> bool:
    """Whether a good answer has the bytes that were asked for, and only them."""
    right = answer.status_code == 200
    if answer.status_code == 206:
        sent = RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        ends = [(start, start + count - 1, total) for total in (str(size), "*")]
        right = sent is not None and (int(sent[1]), int(sent[2]), sent[3]) in ends
    return right and len(answer.content) == count


def backoff(attempt: int) -> float:
    """Seconds to wait after an attempt; attempts count from 0."""
    return 2.0**attempt / 2


def name_of(address: str) -> str:
    """The name of a server in messages."""
    parts = urllib.parse.urlsplit(address)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _retry_after(answer: requests.Response) -> float | None:
    """Seconds that the server asks to wait; Retry-After holds either seconds or a date."""
    text = answer.headers.get("Retry-After", "")[:40]
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _reason(error: requests.RequestException) -> str:
    """What went wrong, in a few words."""
    if isinstance(error, requests.Timeout):
        return "did not respond in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "has a certificate that cannot be verified"
    if isinstance(error, requests.TooManyRedirects):
        return "redirects too often"
    if isinstance(error, requests.JSONDecodeError):
        return "returned an unreadable token"
    return "cannot be reached"
