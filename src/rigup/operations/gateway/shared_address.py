"""Has keepalived hold an address that gateways share, and gives it up."""

from __future__ import annotations

import re
from collections.abc import Generator

from pyinfra import host
from pyinfra.api import FunctionCommand, operation

from rigup.errors import HostFailed
from rigup.gateway.keepalived import DIGEST, PROGRAM
from rigup.gateway.paths import SHARED_FILE, SHARED_UNIT, SHARED_UNIT_FILE
from rigup.host import Host
from rigup.operations.gateway.http_status import await_ok
from rigup.operations.primitives import remote
from rigup.operations.primitives.removal import InstalledPart
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.text_files import changed_texts
from rigup.operations.primitives.units import unit_state

HELD_SECONDS = 20.0
CANDIDATE = f"{SHARED_FILE}.candidate"
LOG = f"on the host: journalctl -u {SHARED_UNIT}"
SHARED_ADDRESS = InstalledPart(
    traces=(SHARED_FILE, SHARED_UNIT_FILE),
    units=(SHARED_UNIT,),
    paths=(SHARED_FILE, CANDIDATE, SHARED_UNIT_FILE),
    doing="giving up the shared address",
    absent="no address is shared",
)
_COMPLAINT = re.compile(r"\bLine [0-9]+\)")


@operation()
def shared_address(interface: str, configuration: str, unit: str, url: str) -> Generator[FunctionCommand, None, None]:
    """Ensures that keepalived holds the shared address, or stands by while another gateway does.

    + interface: where it holds it
    + configuration, unit: the texts of both files
    + url: what must be answered at the shared address, by the gateway that has it
    """
    files = {SHARED_FILE: configuration, SHARED_UNIT_FILE: unit}
    if not changed_texts(host, files) and unit_state(host, SHARED_UNIT).is_right:
        host.noop("keepalived is up to date")
        return
    yield step(_place, interface, configuration, unit, url)


def _place(host: Host, interface: str, configuration: str, unit: str, url: str) -> None:
    if not remote.run(host, "test", "-e", f"/sys/class/net/{interface}").ok:
        raise HostFailed(
            f"{host.name}: gateway.shared_address.interface: this host has no {interface}",
            "list its interfaces: ip -brief address",
        )
    remote.write_file(host, CANDIDATE, configuration)
    # its exit status says nothing: 2.2.7 ends its own test by SIGTERM
    checked = remote.run(host, PROGRAM, "--config-test", f"--use-file={CANDIDATE}").stderr
    if told := next((line for line in checked.splitlines() if _COMPLAINT.search(line)), None):
        remote.check_output(host, "rm", "-f", CANDIDATE)
        raise HostFailed(f"{host.name}: keepalived refuses the configuration: {told.replace(CANDIDATE, SHARED_FILE)}")
    earlier = remote.run(host, "cat", SHARED_UNIT_FILE).stdout
    remote.check_output(host, "mv", "--", CANDIDATE, SHARED_FILE)
    # The unit's file has the configuration's digest and comes last: an interrupted change is repeated.
    running = remote.run(host, "systemctl", "is-active", "--quiet", SHARED_UNIT).ok
    if running and _unit_of(earlier) == _unit_of(unit):
        remote.check_output(host, "systemctl", "reload", SHARED_UNIT)
        remote.write_file(host, SHARED_UNIT_FILE, unit)
        remote.check_output(host, "systemctl", "daemon-reload")
    else:
        remote.write_file(host, SHARED_UNIT_FILE, unit)
        remote.script(host, 'systemctl daemon-reload; systemctl restart "$1"', SHARED_UNIT, doing="starting keepalived")
    remote.check_output(host, "systemctl", "--quiet", "enable", SHARED_UNIT)
    await_ok(host, url, HELD_SECONDS, HostFailed(f"{host.name}: no gateway answers {url}", LOG))


def _unit_of(text: str) -> str:
    return text.partition(DIGEST)[0].strip()
