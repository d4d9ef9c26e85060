"""What a URL is answered with on a gateway's own host."""

from __future__ import annotations

import gevent

from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.primitives import remote

_ASK = ("curl", "--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}")


def http_status(host: Host, url: str, seconds: int) -> str:
    """The status, such as "200"; "000" without an answer in time. The certificate need not be for this address."""
    return remote.run(host, *_ASK, "--max-time", str(seconds), url).stdout.strip()


def await_ok(host: Host, url: str, seconds: float, problem: HostFailed) -> None:
    """Returns once the URL is answered with 200. Raises `problem` if that takes longer."""
    with gevent.Timeout(seconds, problem):
        while http_status(host, url, 3) != "200":
            gevent.sleep(0.5)
