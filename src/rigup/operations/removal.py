"""Takes a service off a host: its unit, its releases, its key, its cache. Its build and its weights stay for prune."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyinfra.api import FunctionCommand, operation

from rigup import layout
from rigup.operations import remote
from rigup.operations.progress import Progress, report
from rigup.operations.releases import UNITS, quadlet_file
from rigup.operations.steps import step
from rigup.render.quadlet import secret_name

STOP_SECONDS = 180

# $1 the service's folder, $2 its unit, $3 where units lie, $4 its Quadlet file, $5 its name, $6 podman's secret.
# The folder goes last: as long as it is there, the service is seen, and a removal that was cut short is done again.
_REMOVE = """
systemctl stop "$2" 2>/dev/null || true; systemctl --quiet disable "$2" 2>/dev/null || true
rm -rf "$3/$2" "$3/$2.d" "$3.control/$2.d" "$4"
systemctl daemon-reload; systemctl reset-failed "$2" 2>/dev/null || true
if command -v podman >/dev/null; then podman secret rm "$6" >/dev/null 2>&1 || true; fi
rm -rf "/var/cache/rigup/$5" "/var/cache/private/rigup/$5"
case "$(systemctl is-active "$2" || true)" in active|activating) echo "$2 still runs" >&2; exit 1;; esac
rm -rf "$1"
"""


@operation()
def removed_service(service: str) -> Generator[FunctionCommand, None, None]:
    """Have nothing of a service but what prune takes.

    + service: its name
    """
    yield step(_remove, service)


def _remove(host: Any, service: str) -> None:
    report(Progress(host.name, "remove", text=f"stopping {service}"))
    unit = layout.unit_name(service)
    words = (layout.service_folder(service), unit, UNITS, quadlet_file(service), service, secret_name(service))
    remote.script(host, _REMOVE, *words, doing=f"removing {service}", timeout=STOP_SECONDS)
