"""A service that is stopped on purpose: while a file exists, its unit does not start, also not at boot."""

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

# $1 the file, $2 the unit. The unit's own ExecStop waits for the requests in flight.
_STOP = """
touch "$1"; systemctl stop "$2"
case "$(systemctl is-active "$2" || true)" in active|activating) echo "$2 is still running" >&2; exit 1;; esac
systemctl reset-failed "$2" 2>/dev/null || true
"""
_START = 'rm -f "$1"; systemctl reset-failed "$2" 2>/dev/null || true; systemctl "$3" "$2"'


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
