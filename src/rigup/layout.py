"""Paths of everything that rigup owns on a host: three roots, defined only here."""

from __future__ import annotations

import re

BUILDS = "/opt/rigup/builds"
PROGRAMS = "/opt/rigup/programs"
WEIGHTS = "/var/lib/rigup/weights"
# Job descriptions, written by root, in a folder that the worker, which runs the jobs, cannot change.
JOBS = "/var/lib/rigup/jobs"
CONFIGURATION = "/etc/rigup"
MOE_CONFIGS = f"{CONFIGURATION}/moe_configs"
HUB_TOKEN = f"{CONFIGURATION}/hub-token"
TUNING = "/var/lib/rigup/tuning"
SERVICES = f"{CONFIGURATION}/services"
RUNTIME = "/run/rigup"
CACHE = "/var/cache/rigup"
LOG = "/var/log/rigup"
APPLY_RECORDS = f"{LOG}/applies.jsonl"
# Folders of every host, root:root 755, parents first: only root can write there.
ROOTS = ("/opt/rigup", BUILDS, PROGRAMS, "/var/lib/rigup", WEIGHTS, JOBS, CONFIGURATION, SERVICES)
# Below a build's folder: CUDA's compiler and libraries as engines look for them, for the kernels that they compile.
CUDA_HOME = "cuda"
# Below a build's folder: the libraries of GPU kernels that were compiled with it, for hosts that take them.
KERNELS = "kernels"
# Not a possible service name: each service's cache is next to it, under the service's name.
PACKAGES = f"{CACHE}/.packages"
# Neither is this: what judges read and say, by service.
JUDGED = f"{CACHE}/.judged"
WORKER_USER = "rigup"
# rigup's own units, named like those of services: the part after "rigup-", and the prefix of jobs.
OWN_UNITS = (
    "apt",
    "gateway",
    "gateway-address",
    "gateway-cache",
    "gateway-certificate",
    "gateway-ports",
    "power-limit",
)
JOB_KINDS = ("build", "tune", "weights")


def weights_folder(repo: str, revision: str) -> str:
    """The folder of one checkpoint revision: complete or absent, never partial."""
    return f"{WEIGHTS}/{repo}/{revision}"


def service_folder(service: str) -> str:
    """The folder of one service: its releases, and `current`, which points at one of them."""
    return f"{CONFIGURATION}/services/{service}"


def api_key_file(service: str) -> str:
    """The file that root alone can read, from which systemd gives a service its API key."""
    return f"{service_folder(service)}/api-key"


def service_cache(service: str, build: str = "") -> str:
    """The folder in which a service keeps what an engine compiles at its first start; the home of one build in it."""
    return f"{CACHE}/{service}/{build}".rstrip("/")


def stopped_file(service: str) -> str:
    """The file that keeps a service stopped: its unit does not start while it exists."""
    return f"{service_folder(service)}/stopped"


def unit_name(service: str) -> str:
    """The systemd unit of one service."""
    return f"rigup-{service}.service"


def job_unit(kind: str, name: str) -> str:
    """The name of the transient unit of a long step, without its suffix; kind is one of JOB_KINDS."""
    assert kind in JOB_KINDS
    return f"rigup-{kind}-{re.sub('[^A-Za-z0-9]', '-', name)}"


def job_file(unit: str) -> str:
    """The JSON file with the job of this unit. Owned by root, in a folder that only root can change."""
    return f"{JOBS}/{unit}.json"


def is_own(service: str) -> bool:
    """Whether a service of this name would clash with one of rigup's own units."""
    return service in OWN_UNITS or service.startswith(tuple(f"{kind}-" for kind in JOB_KINDS))
