"""Runs on a host, every half minute: writes facts about releases and a gateway as text for the node exporter.

usage: release_metrics.py FILE [SERVICES APPLIES SOCKET]

FILE is replaced atomically. SERVICES is the folder of the services, APPLIES the record of applies, SOCKET that of a
gateway.
"""

from __future__ import annotations

import calendar
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

SERVICES = "/etc/rigup/services"
APPLIES = "/var/log/rigup/applies.jsonl"
LAST_BYTES = 1 << 16
GATEWAY = "/run/rigup-gateway/admin.sock"
CERTIFICATE = "/etc/rigup/gateway/certificate.pem"
ACME_CERTIFICATE = "/etc/rigup/acme/certificate.pem"
MOST_BYTES = 16 * 2**20
# HAProxy's counters by client and model, and their names here
USAGE = {
    "http_req_cnt": "rigup_gateway_requests_total",
    "http_fail_cnt": "rigup_gateway_failed_requests_total",
    "bytes_in_cnt": "rigup_gateway_received_bytes_total",
    "bytes_out_cnt": "rigup_gateway_sent_bytes_total",
}
HELP = {
    "rigup_release_info": "The current release of a service and its parts.",
    "rigup_release_timestamp_seconds": "When the release of a service was created.",
    "rigup_release_answered": "Whether the release of a service has ever answered.",
    "rigup_service_active": "Whether systemd reports a service as active.",
    "rigup_service_stopped": "Whether a service was stopped on purpose: by rigup stop, or in the inventory.",
    "rigup_service_restarts": "How often systemd has restarted a service since its last explicit start.",
    "rigup_apply_info": "The last apply of this host: by which rigup, from which lock and commit, and how it ended.",
    "rigup_apply_timestamp_seconds": "When the last apply of this host began.",
    "rigup_gateway_requests_total": "Requests of a client for a model since the gateway's last reload.",
    "rigup_gateway_failed_requests_total": "Of these, the ones answered with a status of 500 or more.",
    "rigup_gateway_received_bytes_total": "Bytes of these requests.",
    "rigup_gateway_sent_bytes_total": "Bytes of their answers.",
    "rigup_gateway_certificate_end_timestamp_seconds": "When the certificate that the gateway uses expires.",
}

# errors of reading JSON of an unexpected form: the service or line is left out then
UNREADABLE = (OSError, ValueError, KeyError, OverflowError, RecursionError)

Sample = tuple[str, dict[str, str], float]


def services(folder: Path) -> Iterator[Sample]:
    """Samples of every service that has a release."""
    for current in sorted(folder.glob("*/current")):
        try:
            release = current.resolve(strict=True)
            manifest = _object(json.loads((release / "release.json").read_text()))
            made = (release / "release.json").stat().st_mtime
            name = current.parent.name
            members = _object(manifest.get("members") or {name: manifest})
            loaded = {member: _object(_object(one).get("checkpoint") or {}) for member, one in members.items()}
        except UNREADABLE:
            continue
        for member, checkpoint in loaded.items():
            words = {"repo": checkpoint.get("repo"), "quant": checkpoint.get("quant"), "build": manifest.get("build")}
            labels = {key: str(value or "") for key, value in words.items()}
            revision = str(checkpoint.get("revision") or "")[:12]
            yield "rigup_release_info", {"service": member, "release": release.name, **labels, "revision": revision}, 1
        yield "rigup_release_timestamp_seconds", {"service": name}, made
        yield "rigup_release_answered", {"service": name}, float((release / "answered").exists())
        state = _state(name)
        if "ActiveState" in state:
            yield "rigup_service_active", {"service": name}, float(state["ActiveState"] == "active")
        yield "rigup_service_stopped", {"service": name}, float((current.parent / "stopped").exists())
        if state.get("NRestarts", "").isdigit():
            yield "rigup_service_restarts", {"service": name}, float(state["NRestarts"])


def _state(service: str) -> dict[str, str]:
    """systemd's properties of a service; empty if it cannot be asked."""
    words = ["systemctl", "show", f"rigup-{service}.service", "--property=ActiveState,NRestarts"]
    try:
        shown = subprocess.run(words, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)


def last_apply(path: Path) -> Iterator[Sample]:
    """Samples of the last valid line of the record."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LAST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return
    for line in reversed(lines):
        try:
            record = _object(json.loads(line))
            began = calendar.timegm(time.strptime(str(record["when"]), "%Y-%m-%d %H:%M:%S UTC"))
        except UNREADABLE:
            continue
        words = {key: str(record.get(key, "")) for key in ("rigup", "lock", "commit", "result")}
        yield "rigup_apply_info", words, 1
        yield "rigup_apply_timestamp_seconds", {}, began
        return


def gateway(path: str) -> Iterator[Sample]:
    """Samples of a gateway that runs here; none without one."""
    rows = [dict(word.partition("=")[::2] for word in line.split()) for line in _told(path, "show table usage")]
    for counter, name in USAGE.items():
        for row in rows:
            client, _, model = row.get("key", "").partition("/")
            if model and row.get(counter, "").isdigit():
                yield name, {"client": client, "model": model}, float(row[counter])
    said = (line for file in (CERTIFICATE, ACME_CERTIFICATE) for line in _told(path, f"show ssl cert {file}"))
    if (end := certificate_end(said)) is not None:
        yield "rigup_gateway_certificate_end_timestamp_seconds", {}, end


def certificate_end(lines: Iterable[str]) -> int | None:
    """When a certificate ends, in seconds since 1970, from HAProxy's answer to "show ssl cert"; None without one."""
    for what, _, when in (line.partition(": ") for line in lines):
        if what == "notAfter":
            try:
                return calendar.timegm(time.strptime(when, "%b %d %H:%M:%S %Y GMT"))
            except UNREADABLE:
                return None
    return None


def _told(path: str, command: str) -> list[str]:
    """The lines that HAProxy answers; none if nobody is there."""
    found = bytearray()
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(5)
            link.connect(path)
            link.sendall(f"{command}\n".encode())
            while len(found) < MOST_BYTES and (part := link.recv(65536)):
                found += part
    except OSError:
        return []
    return found.decode(errors="replace").splitlines()


def _object(content: Any) -> dict[str, Any]:
    """A JSON object. Raises ValueError for anything else."""
    if not isinstance(content, dict):
        raise ValueError("not an object")
    return content


def text(samples: list[Sample]) -> str:
    """The samples in Prometheus' text format, grouped by metric."""
    lines = []
    for name in dict.fromkeys(name for name, _, _ in samples):
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{_labels(labels)} {value:.15g}" for other, labels, value in samples if other == name]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: dict[str, str]) -> str:
    escapes = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
    pairs = (f'{key}="{"".join(escapes.get(c, c) for c in value)}"' for key, value in labels.items())
    return f"{{{','.join(pairs)}}}" if labels else ""


def main(file: str, folder: str = SERVICES, applies: str = APPLIES, admin: str = GATEWAY) -> None:
    """Writes the file."""
    new = Path(f"{file}.{os.getpid()}")
    try:
        # the folder belongs to the exporter, which must not redirect root through a link
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "w") as opened:
            opened.write(text([*services(Path(folder)), *last_apply(Path(applies)), *gateway(admin)]))
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
