"""What sections and servers of a gateway are called in HAProxy. Pure."""

from __future__ import annotations

import hashlib
import re

from rigup.gateway_settings import Backend

# How the section of a route begins, and its server where requests wait if they are held.
SECTION = "model-"
HELD = "held"


def backend_name(model: str) -> str:
    """The name of a route's section, whatever other routes there are: a gateway is told it before its own change."""
    # names of models may have characters that those of sections may not
    name = re.sub("[^A-Za-z0-9._-]", "-", model)
    return f"{SECTION}{name}" if name == model else f"{SECTION}{name}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"


def server_name(backend: Backend) -> str:
    """The name of a backend in its section: that of its host, a dot, and its service's, which has none."""
    return f"{host_label(backend.host)}.{backend.service}"


def host_label(host: str) -> str:
    """How a host is called in the names of its backends."""
    return re.sub("[^A-Za-z0-9._-]", "-", host.rpartition("@")[2])
