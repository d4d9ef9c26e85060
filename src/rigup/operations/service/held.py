"""What a host was when a release last answered as expected, how fast it answered, and what has changed there since.

It lies in the file that marks the release as one that has answered. Older rigups left that file empty.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rigup import layout
from rigup.errors import HostFailed
from rigup.host import Host, state_of
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.service.answer import Answers
from rigup.systemd.driver_files import DRIVER_PREFERENCES

ANSWERED = "answered"
SLOW_SHARE = 0.5
"""An answer with less than this share of the tokens per second of before is worth a word."""
_LEAST_TOKENS, _LEAST_SECONDS = 5, 0.5  # of fewer, the request's own time is most; what is there sooner is not slow
_VALUE = r"(?a)[\w.+~-]{1,100}"
_SPEED = r"(?a)[0-9]{1,9}\.[0-9]"

# Functions of sh. `state` prints what may change the answers of a release whose folder is $1: the driver that runs, the
# kernel, and when its build was made. `hold` notes that in the file which marks it, with the speed $2 unless that is
# empty, and prints what it was and is; it does nothing if all of it is there already.
FUNCTIONS = f"""
state() {{
  if read -r version 2>/dev/null < /sys/module/nvidia/version; then echo "driver $version"; fi
  echo "kernel $(uname -r)"
  build=$(sed -n 's/^{{"build": "\\([^"/]*\\)".*/\\1/p' "$1/release.json" 2>/dev/null || true)
  if made=$(stat -c %Y "{layout.BUILDS}/$build/manifest.json" 2>/dev/null); then echo "build $made"; fi
}}
hold() {{
  now=$(state "$1"); noted=$(cat "$1/{ANSWERED}" 2>/dev/null || true)
  same=$([ -e "$1/{ANSWERED}" ] && [ "$(echo "$noted" | sed '/^speed /d')" = "$now" ] && echo yes || true)
  known=$(echo "$noted" | sed -n 's/^speed //p')
  if [ "$same" ] && [ "${{known:-$2}}" = "$known" ]; then return; fi
  echo "$noted" | sed 's/^/then /'; echo "$now" | sed 's/^/now /'
  {{ echo "$now"; if [ "$2" ]; then echo "speed $2"; fi; }} > "$1/.{ANSWERED}"
  sync "$1/.{ANSWERED}"; mv "$1/.{ANSWERED}" "$1/{ANSWERED}"
}}
"""
_NOTE = f"""{FUNCTIONS}
cd "$1/current" 2>/dev/null && [ -e {ANSWERED} ] || exit 0
hold . "$2"
"""
_COMPARE = f"""{FUNCTIONS}
cd "$1/current" 2>/dev/null && [ -e {ANSWERED} ] || exit 0
echo "number $(basename "$(pwd -P)")"
sed 's/^/then /' {ANSWERED}; state . | sed 's/^/now /'
[ ! -e "$2" ] || echo "pinned yes"
"""


def note_held(host: Host, service: str) -> None:
    """Notes that the current release of a service has answered again on the host as it is now. Raises HostFailed."""
    words = (layout.service_folder(service), speed_of(host, service))
    warn_if_slower(host, service, remote.script(host, _NOTE, *words, doing=f"noting that {service} answers"))


def speed_of(host: Host, service: str) -> str:
    """The tokens per second of the service's latest answer in this run, to note; "" without one that tells them."""
    answer = state_of(host, Answers).by_service.get(service)
    return f"{answer.tokens_per_second:.1f}" if answer and answer.tokens >= _LEAST_TOKENS else ""


def warn_if_slower(host: Host, service: str, said: str) -> None:
    """Warns if a service has answered far slower than before something of its host changed.

    said: what `hold` printed. Both answers came after a start, to the same question.
    """
    found = _read(said)
    before, answer = found.then.get("speed", ""), state_of(host, Answers).by_service.get(service)
    if not (found.moved and answer and speed_of(host, service) and re.fullmatch(_SPEED, before)):
        return
    if answer.seconds >= _LEAST_SECONDS and answer.tokens_per_second < SLOW_SHARE * float(before):
        slower = f"{service} answered at {answer.tokens_per_second:.1f} tokens/s, and at {before} before"
        text = f"warning: {slower} {found.words()} (measure it: rigup bench {service})"
        report(Progress(host.name, "log", text=text))


class _Comparison(NamedTuple):
    """What a host was when a release last answered, and is now: driver, kernel, build. then also has its speed."""

    then: dict[str, str]
    now: dict[str, str]
    number: str
    pinned: bool

    @property
    def moved(self) -> list[str]:
        return [what for what in self.then if what in self.now and self.now[what] != self.then[what]]

    def words(self) -> str:
        moved = [f"{what} {self.then[what]} became {self.now[what]}" for what in self.moved if what != "build"]
        return " and ".join([*moved, *(["its build was made again"] if "build" in self.moved else [])])


def _read(said: str) -> _Comparison:
    found: dict[str, dict[str, str]] = {"then": {}, "now": {}}
    number, pinned = "", False
    for line in said.splitlines():
        key, _, rest = line.partition(" ")
        what, _, value = rest.partition(" ")
        if key in found and re.fullmatch(_VALUE, value):
            found[key][what] = value
        elif key == "number" and what.isdigit():
            number = what
        pinned |= line == "pinned yes"
    return _Comparison(found["then"], found["now"], number, pinned)


def changed_since(host: Host, service: str) -> tuple[str, str]:
    """What has changed since the current release of a service last answered, and how to go back; "" for nothing."""
    try:
        said = remote.script(host, _COMPARE, layout.service_folder(service), DRIVER_PREFERENCES)
    except (HostFailed, *remote.CONNECTION_ERRORS):
        return "", ""
    found = _read(said)
    if not found.number or not found.moved:
        return "", ""
    way_back = _way_back(service, found.moved[0], found.then, found.pinned)
    return f"since release {found.number} last answered, {found.words()}", way_back


def _way_back(service: str, what: str, then: dict[str, str], pinned: bool) -> str:
    if what == "driver" and pinned:
        return f"go back with rigup lock --upgrade driver={then[what]}, then rigup apply"
    if what == "driver":
        return f"install driver {then[what]} again"
    if what == "kernel":
        return f"boot kernel {then[what]} again"
    return f"go back with rigup rollback --service {service}"
