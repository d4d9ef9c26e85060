"""How fast a host downloads from a hub, measured for a few seconds before anything is changed there."""

from __future__ import annotations

import re
import urllib.parse

from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.plan import Checkpoint
from rigup.service import blobs_address

SECONDS = 5
CONNECTIONS = 4
# As many connections as a download has; each ends after SECONDS, or with the file. Without curl nothing is measured.
_MEASURE = f"""
command -v curl >/dev/null || exit 0
for connection in $(seq {CONNECTIONS}); do
  curl -q -s -f -L --max-redirs 5 --proto-redir =http,https --max-time {SECONDS} $2 -o /dev/null \\
    -w '%{{size_download}} %{{time_total}}\\n' -- "$1" &
done
wait
"""
_LINE = re.compile(r"([0-9]{1,15}) ([0-9]{1,3}\.[0-9]{1,9})")


def bytes_per_second(host: Host, checkpoint: Checkpoint, hub: str, limit: int = 0) -> float | None:
    """The rate at which a host downloads the largest file of a checkpoint; None if it cannot be measured.

    limit: bytes per second that the host may download; 0 for no limit.
    """
    file = max(checkpoint.files, key=lambda each: each.size)
    if checkpoint.location:
        address = f"{blobs_address(hub, checkpoint.location)}/sha256:{file.sha256}"
    else:
        address = f"{hub.rstrip('/')}/{checkpoint.repo}/resolve/{checkpoint.revision}/{urllib.parse.quote(file.path)}"
    slower = f"--limit-rate {max(1, limit // CONNECTIONS)}" if limit else ""
    output = remote.run(host, "sh", "-c", _MEASURE, "rigup", address, slower, timeout=3 * SECONDS)
    found = [(int(line[1]), float(line[2])) for line in map(_LINE.fullmatch, output.stdout.splitlines()) if line]
    seconds = max((time for _, time in found), default=0.0)
    total = sum(size for size, _ in found)
    return total / seconds if total and seconds else None
