"""Removes all that rigup has put on a host but drivers and packages, which belong to the system; weights on request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.bounds import count
from rigup.host import Host
from rigup.monitoring.exporters import GPU_FILE, GPU_UNIT, NODE_FILE, NODE_UNIT, PREFERENCES, TEXT_FILE
from rigup.operations.primitives import remote
from rigup.operations.primitives.units import stop_limit
from rigup.systemd.container_files import REGISTRIES
from rigup.systemd.port_guard import TEMPLATE, TEMPLATE_FILE

STATE = "/var/lib/rigup"
FOLDERS = ("/opt/rigup", layout.CONFIGURATION, STATE, layout.CACHE, "/var/cache/private/rigup", layout.LOG)
NEEDRESTART = "/etc/needrestart/conf.d/rigup.conf"
FILES = (TEMPLATE_FILE, REGISTRIES, NEEDRESTART, PREFERENCES, TEXT_FILE)
LIST_SECONDS = 300
REMOVE_SECONDS = 1800

_SIZES = 'for path in "$@"; do [ ! -d "$path" ] || du -s --block-size=1 "$path"; done'
_IMAGES = """
import glob, json
for name in glob.glob("/opt/rigup/builds/*/manifest.json"):
    try:
        image = json.load(open(name))["build"]["image"]
        print(image["repository"] + "@" + image["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
"""
_IMAGE = re.compile(r"[a-z0-9][\w./:-]{0,250}@sha256:[0-9a-f]{64}", re.ASCII)

# $1 folder of weights that stay, or "", $2 the worker, $3 the closed ports' template, $4 the exporters' drop-ins with
# their units ("FILE UNIT FILE UNIT"), $5 files. An exporter is stopped before it loses the file that limits it.
_REMOVE = r"""
units=/etc/systemd/system
systemctl stop 'rigup-*.timer' 'rigup-*.service' 2>/dev/null || true
systemctl stop "$3*" 2>/dev/null || true
left=$(systemctl list-units --plain --no-legend --state=active,activating,deactivating 'rigup-*' | cut -d' ' -f1)
[ -z "$left" ] || { echo "still running: $left" >&2; exit 1; }
if [ -d /etc/rigup/gateway ]; then systemctl --quiet unmask haproxy.service 2>/dev/null || true; fi
set -- "$1" "$2" "$4" "$5"
pairs=$3; files=$4; keep=$1; worker=$2
set -- $pairs
while [ $# -gt 1 ]; do
  if [ -e "$1" ]; then systemctl --quiet disable --now "$2" 2>/dev/null || true; rm -f "$1"; fi
  shift 2
done
for service in /etc/rigup/services/*/; do
  service=${service%/}
  if command -v podman >/dev/null; then podman secret rm "rigup-${service##*/}-api-key" >/dev/null 2>&1 || true; fi
done
rm -rf $units/rigup-* $units/*.wants/rigup-* $units/*.wants/closed-port@* $units.control/rigup-*
rm -rf /etc/containers/systemd/rigup-*
rm -f $files
systemctl daemon-reload; systemctl reset-failed 'rigup-*' 2>/dev/null || true
rm -rf /opt/rigup /var/cache/rigup /var/cache/private/rigup /var/log/rigup
if [ "$keep" ]; then
  find /var/lib/rigup -mindepth 1 -maxdepth 1 ! -path "$keep" -exec rm -rf {} +
else
  rm -rf /var/lib/rigup
  if getent passwd "$worker" >/dev/null; then userdel "$worker"; fi
fi
for user in rigup-acme rigup-smg; do
  if getent passwd "$user" >/dev/null; then userdel "$user"; fi
done
rm -rf /run/rigup /etc/rigup
"""


@dataclass(frozen=True)
class Installed:
    """What rigup has on a host. sizes: bytes by folder. weights: bytes of them; 0 for none."""

    services: tuple[str, ...]
    sizes: Mapping[str, int]
    weights: int

    def is_anything(self, weights: bool) -> bool:
        """Whether anything is to be removed. weights: they count, too."""
        return bool(self.sizes.keys() - {STATE}) or (weights and STATE in self.sizes)

    @property
    def other_bytes(self) -> int:
        """What goes in any case."""
        return max(0, sum(self.sizes.values()) - self.weights)


def installed_on(host: Host, services: tuple[str, ...]) -> Installed:
    """Finds out what is there. services: those that the probe has found. Raises HostFailed."""
    lines = remote.script(host, _SIZES, *FOLDERS, layout.WEIGHTS, doing="measuring folders", timeout=LIST_SECONDS)
    sizes = {}
    for line in lines.splitlines():
        size, _, path = line.partition("\t")
        if path in (*FOLDERS, layout.WEIGHTS):
            try:
                sizes[path] = count(size)
            except ValueError as error:
                raise HostFailed(f"{host.name}: the size of {path}: {error}") from None
    weights = sizes.pop(layout.WEIGHTS, 0)
    return Installed(services, sizes, weights if sizes else 0)


def remove_everything(host: Host, weights: bool) -> None:
    """Stops and removes all of it; services end their requests in flight first. Raises HostFailed.

    The folder of services goes last, so that an interrupted removal can be repeated. Without `weights` the worker user
    stays, too: it owns them.
    """
    images = remote.run(host, "python3", "-I", "-c", _IMAGES).stdout.split()
    keep = "" if weights else layout.WEIGHTS
    drop_ins = f"{NODE_FILE} {NODE_UNIT} {GPU_FILE} {GPU_UNIT}"
    words = (keep, layout.WORKER_USER, TEMPLATE, drop_ins, " ".join(FILES))
    limit = stop_limit(host) + REMOVE_SECONDS
    remote.script(host, _REMOVE, *words, doing="removing rigup's files", timeout=limit)
    for image in filter(_IMAGE.fullmatch, images):
        remote.run(host, "podman", "image", "rm", image, timeout=REMOVE_SECONDS)
