"""Where a gateway's files are on a host, and its unit."""

from __future__ import annotations

from rigup.layout import CONFIGURATION, unit_name

FOLDER = f"{CONFIGURATION}/gateway"
# While the files are exchanged: the new ones until they are checked, and the earlier ones until the gateway answers.
CANDIDATE = f"{FOLDER}.candidate"
PREVIOUS = f"{FOLDER}.previous"
CONFIGURATION_FILE = f"{FOLDER}/haproxy.cfg"
CLIENTS_FILE = f"{FOLDER}/clients.map"
MODELS_FILE = f"{FOLDER}/models.map"
KEYS_FILE = f"{FOLDER}/backend-keys.map"
CERTIFICATE_FILE = f"{FOLDER}/certificate.pem"
UNIT = unit_name("gateway")
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
RUNTIME_FOLDER = "rigup-gateway"
ADMIN_SOCKET = f"/run/{RUNTIME_FOLDER}/admin.sock"
HOLD_SOCKET = f"/run/{RUNTIME_FOLDER}/hold.sock"
PACKAGE = "haproxy"
ADMIN_PROGRAM = "gateway_admin.py"
# Of keepalived, which holds the address that gateways share.
SHARED_FILE = f"{CONFIGURATION}/gateway-address.conf"
SHARED_UNIT = unit_name("gateway-address")
SHARED_UNIT_FILE = f"/etc/systemd/system/{SHARED_UNIT}"
# Of smg, which routes by prefix.
SMG_FOLDER = "/opt/rigup/smg"
SMG_USER = "rigup-smg"
SMG_UNIT = unit_name("gateway-cache")
SMG_UNIT_FILE = f"/etc/systemd/system/{SMG_UNIT}"
CACHE_PROGRAM = "gateway_cache.py"
# Closes the ports between HAProxy and smg to other users.
PORTS_UNIT = unit_name("gateway-ports")
PORTS_UNIT_FILE = f"/etc/systemd/system/{PORTS_UNIT}"
# A certificate by ACME, which certbot keeps as a user of its own; HAProxy reads the copy.
ACME_FOLDER = f"{CONFIGURATION}/acme"
ACME_FILE = f"{ACME_FOLDER}/certificate.pem"
ACME_STATE = "/var/lib/rigup/acme"
ACME_USER = "rigup-acme"
# Where HAProxy passes on what the ACME server asks. While certbot does not run, any user of the host could answer at a
# port above 1023, and so get a certificate for the gateway's names. IANA has assigned 300 to nothing.
ACME_PORT = 300
ACME_UNIT = unit_name("gateway-certificate")
ACME_UNIT_FILE = f"/etc/systemd/system/{ACME_UNIT}"
ACME_TIMER = ACME_UNIT.replace(".service", ".timer")
ACME_TIMER_FILE = f"/etc/systemd/system/{ACME_TIMER}"
CERTIFICATE_PROGRAM = "gateway_certificate.py"
# The package creates this user and group.
USER = "haproxy"
