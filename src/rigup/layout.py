"""Where everything that rigup owns lies on a host: three roots, named here and nowhere else."""

from __future__ import annotations

import re

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
# Units that rigup makes for itself, named as a service's would be: what follows "rigup-", and how the jobs' begin.
OWN_UNITS = ("apt", "power-limit")
JOB_KINDS = ("build", "tune", "weights")


def weights_folder(repo: str, revision: str) -> str:
    """The folder of one checkpoint revision: complete or absent, never half there."""
    return f"{WEIGHTS}/{repo}/{revision}"


def service_folder(service: str) -> str:
    """The folder of one service: its releases, and `current`, which points at one of them."""
    return f"{CONFIGURATION}/services/{service}"


def unit_name(service: str) -> str:
    """The systemd unit of one service."""
    return f"rigup-{service}.service"


def job_unit(kind: str, name: str) -> str:
    """The transient unit of a long step, without its ending; kind is one of JOB_KINDS."""
    assert kind in JOB_KINDS
    return f"rigup-{kind}-{re.sub('[^A-Za-z0-9]', '-', name)}"


def is_own(service: str) -> bool:
    """Whether a service of this name would have a unit that rigup makes for itself."""
    return service in OWN_UNITS or service.startswith(tuple(f"{kind}-" for kind in JOB_KINDS))
