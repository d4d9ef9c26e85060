"""Where everything that rigup owns lies on a host: three roots, named here and nowhere else."""

from __future__ import annotations

BUILDS = "/opt/rigup/builds"
PROGRAMS = "/opt/rigup/programs"
WEIGHTS = "/var/lib/rigup/weights"
CONFIGURATION = "/etc/rigup"
MOE_CONFIGS = f"{CONFIGURATION}/moe_configs"
TUNING = "/var/lib/rigup/tuning"
RUNTIME = "/run/rigup"
CACHE = "/var/cache/rigup"
LOG = "/var/log/rigup"
# No service can be called that: a service's own cache lies beside it, under the service's name.
PACKAGES = f"{CACHE}/.packages"
WORKER_USER = "rigup"


def weights_folder(repo: str, revision: str) -> str:
    """The folder of one checkpoint revision: complete or absent, never half there."""
    return f"{WEIGHTS}/{repo}/{revision}"


def service_folder(service: str) -> str:
    """The folder of one service: its releases, and `current`, which points at one of them."""
    return f"{CONFIGURATION}/services/{service}"


def unit_name(service: str) -> str:
    """The systemd unit of one service."""
    return f"rigup-{service}.service"
