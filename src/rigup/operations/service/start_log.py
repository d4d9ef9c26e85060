"""What a service's log says about its start."""

from __future__ import annotations

import math
import time

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.bounds import Unreadable
from rigup.facts.manifest import read_manifest
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.printable import printable

SHOWN_LINES = 15
READ_LINES = 1000
# The lines of a start come before the first request; rigup does not read a log of months to its end.
_OF_START = (
    'id=$(systemctl show --property=InvocationID --value "$1"); [ -n "$id" ] || exit 0; '
    'journalctl --quiet --no-pager --output=cat "_SYSTEMD_INVOCATION_ID=$id" | head -n 20000 | '
    'grep -E "$2" | head -n 2000; true'
)


def lines_of_start(host: Host, service: str, pattern: str) -> list[str]:
    """The lines of the log since a running service was started that match grep's `pattern`.

    Raises one of CONNECTION_ERRORS.
    """
    words = (layout.unit_name(service), pattern)
    return remote.run(host, "sh", "-c", _OF_START, "rigup", *words, timeout=30).stdout.splitlines()


def explained(host: Host, service: str, began: float, problem: str) -> str:
    """The problem with the line of the log that says why the current release does not start; shows the last lines, too.

    began: when it was started, by time.monotonic().
    """
    from rigup.catalogue.engine_packages.start_failures import reason_in  # only a start that failed needs it

    since = f"--since=-{math.ceil(time.monotonic() - began)}s"
    words = ("--no-pager", "-o", "cat", "-n", str(READ_LINES), since, "-u", layout.unit_name(service))
    kept = f"{layout.service_folder(service)}/current/release.json"
    try:
        lines = printable(remote.run(host, "journalctl", *words, timeout=20).stdout).splitlines()
        build = str(read_manifest(remote.check_output(host, "cat", kept), kept).get("build", ""))
    except (HostFailed, Unreadable, *remote.CONNECTION_ERRORS):
        return problem
    for line in lines[-SHOWN_LINES:]:
        report(Progress(host.name, "log", text=line))
    why = reason_in(lines, build)
    return f"{problem}: {why}" if why and why not in problem else problem
