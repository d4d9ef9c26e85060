"""What a host was when a release last answered as expected, and what has changed there since.

It lies in the file that marks the release as one that has answered. Older rigups left that file empty.
"""

from __future__ import annotations

import re

from rigup import layout
from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.systemd.driver_files import DRIVER_PREFERENCES

ANSWERED = "answered"
_VALUE = re.compile(r"[\w.+~-]{1,100}", re.ASCII)

# Functions of sh. `state` prints what may change the answers of a release whose folder is $1: the driver that runs, the
# kernel, and when its build was made. `hold` notes that in the file which marks it, if it is not there already.
FUNCTIONS = f"""
state() {{
  if read -r version 2>/dev/null < /sys/module/nvidia/version; then echo "driver $version"; fi
  echo "kernel $(uname -r)"
  build=$(sed -n 's/^{{"build": "\\([^"/]*\\)".*/\\1/p' "$1/release.json" 2>/dev/null || true)
  if made=$(stat -c %Y "{layout.BUILDS}/$build/manifest.json" 2>/dev/null); then echo "build $made"; fi
}}
hold() {{
  now=$(state "$1")
  if [ -e "$1/{ANSWERED}" ] && [ "$(cat "$1/{ANSWERED}")" = "$now" ]; then return; fi
  echo "$now" > "$1/.{ANSWERED}"; sync "$1/.{ANSWERED}"; mv "$1/.{ANSWERED}" "$1/{ANSWERED}"
}}
"""
_NOTE = f"""{FUNCTIONS}
cd "$1/current" 2>/dev/null && [ -e {ANSWERED} ] || exit 0
hold .
"""
_COMPARE = f"""{FUNCTIONS}
cd "$1/current" 2>/dev/null && [ -e {ANSWERED} ] || exit 0
echo "number $(basename "$(pwd -P)")"
sed 's/^/then /' {ANSWERED}; state . | sed 's/^/now /'
[ ! -e "$2" ] || echo "pinned yes"
"""


def note_held(host: Host, service: str) -> None:
    """Notes that the current release of a service has answered again on the host as it is now. Raises HostFailed."""
    folder = layout.service_folder(service)
    remote.script(host, _NOTE, folder, doing=f"noting that {service} answers")


def changed_since(host: Host, service: str) -> tuple[str, str]:
    """What has changed since the current release of a service last answered, and how to go back; "" for nothing."""
    try:
        said = remote.script(host, _COMPARE, layout.service_folder(service), DRIVER_PREFERENCES)
    except (HostFailed, *remote.CONNECTION_ERRORS):
        return "", ""
    found: dict[str, dict[str, str]] = {"then": {}, "now": {}}
    number, pinned = "", False
    for line in said.splitlines():
        key, _, rest = line.partition(" ")
        what, _, value = rest.partition(" ")
        if key in found and _VALUE.fullmatch(value):
            found[key][what] = value
        elif key == "number" and what.isdigit():
            number = what
        pinned |= line == "pinned yes"
    then, now = found["then"], found["now"]
    moved = [what for what in then if what in now and now[what] != then[what]]
    if not number or not moved:
        return "", ""
    words = [f"{what} {then[what]} became {now[what]}" for what in moved if what != "build"]
    words += ["its build was made again"] if "build" in moved else []
    return f"since release {number} last answered, {' and '.join(words)}", _way_back(service, moved[0], then, pinned)


def _way_back(service: str, what: str, then: dict[str, str], pinned: bool) -> str:
    if what == "driver" and pinned:
        return f"go back with rigup lock --upgrade driver={then[what]}, then rigup apply"
    if what == "driver":
        return f"install driver {then[what]} again"
    if what == "kernel":
        return f"boot kernel {then[what]} again"
    return f"go back with rigup rollback --service {service}"
