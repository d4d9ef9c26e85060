"""A gateway's certificate by ACME: obtained before HAProxy's configuration names it, renewed by a timer."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping

from pyinfra import host
from pyinfra.api import FunctionCommand, operation
from pyinfra.facts.files import File

from rigup.errors import HostFailed
from rigup.gateway.paths import (
    ACME_FILE,
    ACME_FOLDER,
    ACME_STATE,
    ACME_TIMER,
    ACME_TIMER_FILE,
    ACME_UNIT,
    ACME_UNIT_FILE,
)
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.removal import InstalledPart
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.text_files import changed_texts
from rigup.operations.primitives.units import unit_state

STEP = "gateway"
SECONDS = 330
LOG = f"on the host: journalctl -u {ACME_UNIT}"
CERTIFICATE = InstalledPart(
    traces=(ACME_UNIT_FILE,),
    units=(ACME_TIMER,),
    paths=(ACME_FOLDER, ACME_STATE, ACME_TIMER_FILE, ACME_UNIT_FILE),
    doing="removing the certificate",
    absent="no certificate by ACME",
)
_PORT = re.compile(r"(?<= )[0-9]{1,5}(?= certonly )", re.ASCII)  # of certbot, in the command of the unit
_SAYS_NOTHING = ("Saving debug log", "Ask for help", "See the logfile", "Please see the logfile", "An unexpected error")


@operation()
def acme_certificate(units: Mapping[str, str], directory: str) -> Generator[FunctionCommand, None, None]:
    """Ensures that there is a certificate for these names, which a timer renews.

    + units: their texts by path
    + directory: of the ACME server
    """
    right = not changed_texts(host, units) and unit_state(host, ACME_TIMER).is_right
    if right and host.get_fact(File, path=ACME_FILE):
        host.noop("the certificate is there")
        return
    yield step(_obtain, dict(units), directory)


def _obtain(host: Host, units: dict[str, str], directory: str) -> None:
    report(Progress(host.name, STEP, text="obtaining the certificate"))
    if not remote.run(host, "curl", "--silent", "--fail", "--max-time", "15", "--output", "/dev/null", directory).ok:
        raise HostFailed(
            f"{host.name}: the ACME directory {directory} does not answer",
            f"check gateway.tls.acme.directory, DNS and the firewall; on the host: curl {directory}",
        )
    earlier = remote.run(host, "cat", ACME_UNIT_FILE).stdout
    remote.write_file(host, ACME_UNIT_FILE, _at_earlier_port(units[ACME_UNIT_FILE], earlier))
    remote.check_output(host, "systemctl", "daemon-reload")
    if not remote.run(host, "systemctl", "start", ACME_UNIT, timeout=SECONDS).ok:
        told = _complaint(host)
        if earlier:
            remote.write_file(host, ACME_UNIT_FILE, earlier)
        else:
            remote.check_output(host, "rm", "-f", ACME_UNIT_FILE)
        remote.run(host, "systemctl", "reset-failed", ACME_UNIT)
        remote.check_output(host, "systemctl", "daemon-reload")
        raise HostFailed(f"{host.name}: no certificate from {directory}: {told}; the gateway stays as it was", LOG)
    remote.write_file(host, ACME_UNIT_FILE, units[ACME_UNIT_FILE])
    remote.write_file(host, ACME_TIMER_FILE, units[ACME_TIMER_FILE])
    start = 'systemctl daemon-reload; systemctl --quiet enable --now "$1"'
    remote.script(host, start, ACME_TIMER, doing="starting the timer")


def _at_earlier_port(unit: str, earlier: str) -> str:
    """The unit with certbot at the port of an earlier one: HAProxy still passes what the ACME server asks on to that.

    Its new configuration comes after the certificate.
    """
    port = _PORT.search(earlier)
    return _PORT.sub(port[0], unit) if port else unit


def _complaint(host: Host) -> str:
    """The line in which certbot says most: what the server found, if it says so."""
    words = ("journalctl", "--no-pager", "-o", "cat", "-n", "40", "-t", "rigup-gateway-certificate")
    lines = [line.strip() for line in remote.run(host, *words).stdout.splitlines()]
    said = [line for line in lines if line and not line.startswith(_SAYS_NOTHING)]
    details = [line.partition("Detail:")[2].strip() for line in said if "Detail:" in line]
    return (details or said or ["no output"])[-1][:300]
