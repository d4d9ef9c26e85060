"""Runs on a gateway: has certbot obtain its certificate, and HAProxy take it over.

usage: gateway_certificate.py obtain ADDRESS PORT WORD...
       gateway_certificate.py deploy LINEAGE

obtain: as the unprivileged user. certbot, with these words, answers at PORT of loopback if somebody, which is HAProxy,
listens on port 80 of ADDRESS; otherwise on port 80 itself. deploy: as root. Reads with the rights of that user what
certbot has kept as LINEAGE, and has HAProxy take it over; what was there comes back if HAProxy refuses it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

CERTBOT = "/usr/bin/certbot"
KEPT = "/var/lib/rigup/acme/config/live"
TARGET = Path("/etc/rigup/acme/certificate.pem")
CONFIGURATION = Path("/etc/rigup/gateway/haproxy.cfg")
UNIT = "rigup-gateway.service"
OWNER, READER = "rigup-acme", "haproxy"
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  compared only
HTTP = 80
LARGEST = 1 << 20
"""Bytes that are read of each of the two files."""
SECONDS = 20


def obtain(address: str, port: str, words: list[str]) -> None:
    """Becomes certbot."""
    place = ("127.0.0.1", port) if listens(EVERY_ADDRESS.get(address, address), HTTP) else (address, str(HTTP))
    os.execv(CERTBOT, [CERTBOT, *words, "--http-01-address", place[0], "--http-01-port", place[1]])  # noqa: S606  no shell


def listens(address: str, port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        with socket.create_connection((address, port), timeout=3):
            return True
    except OSError:
        return False


def deploy(lineage: str) -> str:
    """Has HAProxy use the certificate; returns why it cannot, or ""."""
    pem = kept(lineage)
    if len(pem) > LARGEST:
        return f"what certbot has kept is larger than {LARGEST >> 20} MiB"
    if "BEGIN CERTIFICATE-----" not in pem or "PRIVATE KEY-----" not in pem:
        return "certbot has kept no certificate"
    earlier = TARGET.read_text() if TARGET.exists() else ""
    if pem == earlier:
        return ""
    put(pem)
    if not CONFIGURATION.exists() or str(TARGET) not in CONFIGURATION.read_text() or not succeeds("is-active"):
        return ""
    if succeeds("reload"):
        return ""
    put(earlier)
    return "HAProxy refuses the certificate; the earlier one stays"


def kept(lineage: str) -> str:
    """Chain and key as certbot has kept them, read as their owner, who could have put anything in their place.

    "" if they do not end, as a pipe does not; one character more than LARGEST, or more, if there is too much.
    """
    files = [f"{KEPT}/{lineage}/{name}.pem" for name in ("fullchain", "privkey")]
    words = ["/usr/bin/head", "--quiet", f"--bytes={LARGEST + 1}", "--", *files]
    account: dict[str, Any] = {"user": OWNER, "group": OWNER, "extra_groups": []}
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=SECONDS, **account)
    except subprocess.TimeoutExpired:
        return ""
    return str(done.stdout.decode("latin-1"))


def put(pem: str) -> None:
    """Writes the file in one step, for HAProxy alone; without a text, removes it."""
    if not pem:
        TARGET.unlink(missing_ok=True)
        return
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.parent.chmod(0o755)  # whatever the umask of the unit
    fresh = TARGET.with_name(".certificate.new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(pem)
    subprocess.run(["/usr/bin/chown", f"root:{READER}", str(fresh)], check=True)
    fresh.chmod(0o640)
    fresh.replace(TARGET)


def succeeds(verb: str) -> bool:
    """Whether systemctl does this with the gateway."""
    return subprocess.run(["/usr/bin/systemctl", "--quiet", verb, UNIT]).returncode == 0


if __name__ == "__main__":
    if sys.argv[1] == "obtain":
        obtain(sys.argv[2], sys.argv[3], sys.argv[4:])
    sys.exit(deploy(sys.argv[2]) or 0)
