"""A service that is stopped on purpose, or removed.

While a file exists, the unit of a stopped service does not start, also not at boot. Of a removed service, build and
weights stay until prune.
"""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import host
from pyinfra.api import FunctionCommand, operation

from rigup import layout
from rigup.facts.host import Probe
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.units import START_SECONDS, stop_limit
from rigup.operations.service.releases import CLOSED_PORT, UNITS, quadlet_file
from rigup.systemd.quadlet import secret_name

# $1 the file, $2 the unit. The unit's own ExecStop waits for the requests in flight.
_STOP = """
touch "$1"; systemctl stop "$2"
case "$(systemctl is-active "$2" || true)" in active|activating) echo "$2 is still running" >&2; exit 1;; esac
systemctl reset-failed "$2" 2>/dev/null || true
"""
_START = 'rm -f "$1"; systemctl reset-failed "$2" 2>/dev/null || true; systemctl "$3" "$2"'

# $1 the service's folder, $2 its unit, $3 the folder of units, $4 its Quadlet file, $5 its name, $6 podman's secret.
# The folder is removed last: while it exists, rigup sees the service, and repeats an interrupted removal.
_REMOVE = f"""
closed=$({CLOSED_PORT.format('"$3/$2" "$4"')})
systemctl stop "$2" $closed 2>/dev/null || true; systemctl --quiet disable "$2" 2>/dev/null || true
rm -rf "$3/$2" "$3/$2.d" "$3.control/$2.d" "$4"
systemctl daemon-reload; systemctl reset-failed "$2" 2>/dev/null || true
if command -v podman >/dev/null; then podman secret rm "$6" >/dev/null 2>&1 || true; fi
rm -rf "/var/cache/rigup/$5" "/var/cache/private/rigup/$5"
case "$(systemctl is-active "$2" || true)" in active|activating) echo "$2 is still running" >&2; exit 1;; esac
rm -rf "$1"
"""


@operation()
def stopped_service(service: str, probe: Probe) -> Generator[FunctionCommand, None, None]:
    """Ensures that a service does not run and does not start at boot.

    + service: its name
    + probe: of this host
    """
    if probe.rests(service):
        host.noop(f"{service} is stopped")
        return
    yield step(stop, service)


def stop(host: Host, service: str) -> None:
    """Stops a service once its requests in flight have ended; it stays stopped. Raises HostFailed."""
    report(Progress(host.name, "service", text=f"stopping {service} after its requests in flight"))
    words = (layout.stopped_file(service), layout.unit_name(service))
    remote.script(host, _STOP, *words, doing=f"stopping {service}", timeout=stop_limit(host))


def start(host: Host, service: str, again: bool) -> None:
    """Starts a service, or restarts it once its requests in flight have ended. Raises HostFailed.

    Returns once systemd has started it, before it answers.
    """
    report(Progress(host.name, "service", text=f"{'restarting' if again else 'starting'} {service}"))
    words = (layout.stopped_file(service), layout.unit_name(service), "restart" if again else "start")
    limit = START_SECONDS + (stop_limit(host) if again else 0)
    remote.script(host, _START, *words, doing=f"starting {service}", timeout=limit)


def remove_service(host: Host, service: str) -> None:
    """Stops a service and removes all of it except what prune removes. Raises HostFailed."""
    report(Progress(host.name, "remove", text=f"stopping {service}"))
    unit = layout.unit_name(service)
    words = (layout.service_folder(service), unit, UNITS, quadlet_file(service), service, secret_name(service))
    remote.script(host, _REMOVE, *words, doing=f"removing {service}", timeout=stop_limit(host))
