"""A certificate by ACME (RFC 8555): certbot asks for it by http-01, and a timer does so again before it ends. Pure.

ACME's server asks port 80, where HAProxy passes such requests on to certbot. Where HAProxy does not listen there, as
before its first start, certbot does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from rigup import layout
from rigup.gateway.paths import (
    ACME_PORT,
    ACME_STATE,
    ACME_TIMER_FILE,
    ACME_UNIT_FILE,
    ACME_USER,
    CERTIFICATE_PROGRAM,
    UNIT,
)
from rigup.gateway_settings import Acme, Gateway
from rigup.systemd.quoting import command_line, unit_file
from rigup.systemd.service import SANDBOX

PACKAGE = "certbot"
HTTP = 80
MOST_OF_CHALLENGES, MOST_OF_ADDRESS = 100, 10
CHALLENGES = "/.well-known/acme-challenge/"
_CAPABILITIES = ("CapabilityBoundingSet=", "AmbientCapabilities=")


def lineage(acme: Acme) -> str:
    """What certbot calls this certificate: another one for other names, or of another directory."""
    asked = "\n".join((acme.directory, *acme.domains))
    return f"gateway-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"


def challenge_sections(gateway: Gateway, listen: str, heads: Sequence[str]) -> list[tuple[str, list[str]]]:
    """What HAProxy needs to let certbot answer. Nothing else is answered without TLS.

    listen: of port 80. heads: lines by which a frontend in TCP mode bounds what requests begin with.
    """
    if gateway.acme is None:
        return []
    return [
        (
            "frontend challenges",
            [
                "mode tcp",
                f"bind {listen}",
                # of a port that is open to everybody
                f"maxconn {MOST_OF_CHALLENGES}",
                "stick-table type ipv6 size 10k expire 1m store conn_cur",
                "tcp-request connection track-sc0 src,ipmask(32,64)",
                f"tcp-request connection reject if {{ sc0_conn_cur gt {MOST_OF_ADDRESS} }}",
                *heads,
                "http-request set-log-level silent",
                f"http-request return status 404 unless {{ method GET }} {{ path_beg {CHALLENGES} }}",
                "default_backend challenges",
            ],
        ),
        ("backend challenges", [f"server certbot 127.0.0.1:{ACME_PORT}"]),
    ]


def certificate_units(gateway: Gateway, acme: Acme) -> dict[str, str]:
    """The units that obtain and renew it, by path."""
    program = ("/usr/bin/python3", "-I", f"{layout.PROGRAMS}/{CERTIFICATE_PROGRAM}")
    obtain = (*program, "obtain", gateway.listen, str(ACME_PORT), *_certbot(acme))
    capabilities = [f"{line}CAP_NET_BIND_SERVICE" for line in _CAPABILITIES]
    service = {
        "Unit": (
            "Description=rigup gateway: certificate",
            "Wants=network-online.target",
            f"After=network-online.target {UNIT}",
        ),
        "Service": (
            "Type=oneshot",
            f"User={ACME_USER}",
            f"Group={ACME_USER}",
            f"StateDirectory={ACME_STATE.removeprefix('/var/lib/')}",
            "StateDirectoryMode=0700",
            f"ExecStart={command_line(obtain)}",
            f"ExecStartPost=+{command_line((*program, 'deploy', lineage(acme)))}",
            "TimeoutStartSec=300",
            "SyslogIdentifier=rigup-gateway-certificate",
            *(line for line in SANDBOX if line not in _CAPABILITIES),
            *capabilities,
            "PrivateDevices=yes",
            "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
        ),
    }
    timer = {
        "Unit": ("Description=rigup gateway: certificate, twice a day",),
        # certbot's own rhythm, and nobody's load at the same minute
        "Timer": ("OnCalendar=*-*-* 00,12:00:00", "RandomizedDelaySec=11h", "Persistent=yes"),
        "Install": ("WantedBy=timers.target",),
    }
    return {ACME_UNIT_FILE: unit_file(service), ACME_TIMER_FILE: unit_file(timer)}


def _certbot(acme: Acme) -> tuple[str, ...]:
    """certbot's words: it asks for a certificate if there is none, or if that ends within 30 days."""
    contact = ("--email", acme.email, "--no-eff-email") if acme.email else ("--register-unsafely-without-email",)
    domains = (word for domain in acme.domains for word in ("--domain", domain))
    return (
        "certonly",
        "--standalone",
        "--non-interactive",
        "--agree-tos",
        "--keep-until-expiring",
        *("--cert-name", lineage(acme)),
        *("--server", acme.directory),
        *contact,
        *domains,
        *("--config-dir", f"{ACME_STATE}/config"),
        *("--work-dir", f"{ACME_STATE}/work"),
        *("--logs-dir", f"{ACME_STATE}/logs"),
    )
