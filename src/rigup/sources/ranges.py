"""Parts of files on servers: requests for ranges, and whether the answer is what was asked for."""

from __future__ import annotations

import re
from collections.abc import Callable

import requests

from rigup.sources.bounded_http import BoundExceeded
from rigup.sources.http_retry import TIMEOUT_S, get_with_retry

LARGEST_PART = 2**22
RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


def get_part(
    session: requests.Session, url: str, size: int, start: int, count: int, pause: Callable[[float], None]
) -> requests.Response:
    """The answer to a request for `count` bytes from `start` of a file of `size` bytes. Raises RetriesExhausted.

    pause: waits between attempts, for a number of seconds.
    """

    def ask() -> requests.Response:
        wanted = {"Range": f"bytes={start}-{start + count - 1}"}
        with session.get(url, headers=wanted, timeout=TIMEOUT_S, stream=True) as answer:
            if answer.status_code == 200 and (start, count) != (0, size):
                raise BoundExceeded("sends whole files where a part is requested")
            answer.content  # noqa: B018  read here, so that a failure is tried again
            return answer

    return get_with_retry(ask, pause)


def is_part(answer: requests.Response, size: int, start: int, count: int) -> bool:
    """Whether a good answer has the bytes that were asked for, and only them."""
    right = answer.status_code == 200
    if answer.status_code == 206:
        sent = RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        ends = [(start, start + count - 1, total) for total in (str(size), "*")]
        right = sent is not None and (int(sent[1]), int(sent[2]), sent[3]) in ends
    return right and len(answer.content) == count
