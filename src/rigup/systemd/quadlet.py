"""A service from a container image: the Quadlet file from which podman generates the systemd unit.

It only uses keys of podman 4.9 (Ubuntu 24.04); newer features are options of `podman run` in PodmanArgs.
Source: podman-systemd.unit(5).
"""

from __future__ import annotations

from rigup.layout import service_cache, service_folder, weights_folder
from rigup.plan import BoundPlan
from rigup.systemd.api_key import CREDENTIAL_NAME, wants_key, wrapped
from rigup.systemd.draining import stop_lines, stop_seconds
from rigup.systemd.port_guard import start_lines
from rigup.systemd.quoting import command_line, unit_file
from rigup.systemd.service import caches, unit, unit_section

SECRETS = "/run/secrets"
TEMPORARY = "/tmp"  # noqa: S108  the container's own
HOME = "/cache"
# Engines on several GPUs pass tensors through shared memory, far more than podman's 64 MiB. Only an upper bound.
SHARED_MEMORY = "32g"
STOP_SECONDS = 45
# The folders that systemd gives to a service, and their places in the container.
_FOLDERS = {"${CREDENTIALS_DIRECTORY}": SECRETS, "${RUNTIME_DIRECTORY}": TEMPORARY}


def service_file(plan: BoundPlan, build_folder: str) -> str:
    """The file that systemd runs a plan from: a Quadlet file for an image, otherwise a unit for `build_folder`."""
    assert plan.build is not None
    return quadlet(plan, build_folder) if plan.build.method == "image" else unit(plan, build_folder)


def quadlet(plan: BoundPlan, build_folder: str) -> str:
    """The `.container` file of a plan with a locked image; ends with a newline. build_folder: names its cache."""
    cache = service_cache(plan.service.name, build_folder.rpartition("/")[2])
    sections = {
        "Unit": unit_section(plan),
        "Container": (*_what(plan), *_confined(plan), *_mounts(plan, cache), *_key(plan), *_variables(plan)),
        "Service": _service(plan, cache),
        "Install": ("WantedBy=multi-user.target",),
    }
    return unit_file(sections)


def secret_name(service: str) -> str:
    """The name of a service's API key in podman."""
    return f"rigup-{service}-{CREDENTIAL_NAME}"


def _what(plan: BoundPlan) -> tuple[str, ...]:
    """The image, and the program in it with its arguments."""
    if plan.build is None or plan.build.image is None or not plan.command:
        raise ValueError(f"no image to run: the plan for {plan.host} is {plan.verdict}, or its image is not locked")
    words = tuple(_in_container(word) for word in plan.command)
    if wants_key(plan.service):
        words = wrapped(plan.build.engine, words)
    # An image's own health check uses its vendor's port; rigup checks the service itself.
    fixed = ("--ulimit=host", "--pids-limit=-1", "--no-healthcheck")
    options = [f"--entrypoint={words[0]}", *fixed, f"--stop-timeout={STOP_SECONDS}"]
    if plan.rig.gpus:
        options.append(f"--shm-size={SHARED_MEMORY}")
    return (
        f"ContainerName=rigup-{plan.service.name}",
        f"Image={plan.build.image.reference}",
        "Pull=never",
        f"PodmanArgs={command_line(tuple(options))}",
        f"Exec={command_line(words[1:])}",
        "LogDriver=passthrough",
    )


def _in_container(word: str) -> str:
    for name, folder in _FOLDERS.items():
        word = word.replace(name, folder)
    return word


def _confined(plan: BoundPlan) -> tuple[str, ...]:
    """Maps root in the container to an unprivileged user without capabilities.

    With GPUs, the image's files are writable in a layer that is deleted with the container, because nvidia-cdi-hook
    creates links and the linker's cache there (create-symlinks, update-ldcache).
    """
    return (
        "Network=host",
        "UserNS=auto",
        "DropCapability=all",
        "NoNewPrivileges=true",
        *(() if plan.rig.gpus else ("ReadOnly=true",)),
        *(f"AddDevice=nvidia.com/gpu={device}" for device in _devices(plan)),
    )


def _devices(plan: BoundPlan) -> tuple[str, ...]:
    """The GPUs by their CDI names: UUIDs if they are known, otherwise NVML's indices, or "all"."""
    uuids = tuple(plan.gpu_uuids.values()) or tuple(gpu for gpu in plan.service.gpus or () if isinstance(gpu, str))
    used = tuple(row.gpu for row in plan.memory)
    if uuids:
        return uuids
    if len(used) == len(plan.rig.gpus):
        return ("all",) if used else ()
    return tuple(str(index) for index in used)


def _mounts(plan: BoundPlan, cache: str) -> tuple[str, ...]:
    """Weights and tuned kernels at the paths of the command, read-only; a persistent home, and a temporary /tmp.

    /tmp may hold programs, because engines load compiled kernels from there.
    """
    shown: dict[str, str] = {}
    for checkpoint in plan.checkpoints:
        assert checkpoint.revision is not None
        weights = weights_folder(checkpoint.repo, checkpoint.revision)
        shown |= checkpoint.shown_files or {weights: weights}
    shown |= {plan.moe_folder.path: plan.moe_folder.path} if plan.moe_folder else {}
    return (
        *(f"Volume={real}:{path}:ro" for path, real in shown.items()),
        f"Volume={cache}:{HOME}:U",
        f"Tmpfs={TEMPORARY}:rw,exec,mode=1777",
    )


def _key(plan: BoundPlan) -> tuple[str, ...]:
    if not wants_key(plan.service):
        return ()
    return (f"Secret={secret_name(plan.service.name)},type=mount,target={SECRETS}/{CREDENTIAL_NAME},mode=0400",)


def _variables(plan: BoundPlan) -> tuple[str, ...]:
    """The plan's variables except the choice of GPUs, since the container has no others. Quoted like a command."""
    variables = {**caches(plan, HOME), **plan.environment}
    variables.pop("CUDA_VISIBLE_DEVICES", None)
    if wants_key(plan.service):
        variables |= {name[2:-1]: folder for name, folder in _FOLDERS.items()}
    return tuple(f"Environment={command_line((f'{name}={value}',))}" for name, value in variables.items())


def _service(plan: BoundPlan, cache: str) -> tuple[str, ...]:
    name = plan.service.name
    key = (
        f"LoadCredential={CREDENTIAL_NAME}:{service_folder(name)}/{CREDENTIAL_NAME}",
        f"ExecStartPre=/usr/bin/podman secret create --replace {secret_name(name)} "
        f"${{CREDENTIALS_DIRECTORY}}/{CREDENTIAL_NAME}",
        f"ExecStopPost=-/usr/bin/podman secret rm {secret_name(name)}",
    )
    return (
        *(key if wants_key(plan.service) else ()),
        *start_lines(plan),
        *stop_lines(plan),
        f"ExecStartPre=/usr/bin/mkdir -p {cache}",
        f"CacheDirectory=rigup/{name}",
        "CacheDirectoryMode=0700",
        "Restart=on-failure",
        "RestartSec=10",
        f"TimeoutStartSec={plan.start_timeout_s}",
        f"TimeoutStopSec={stop_seconds(plan)}",
        "LimitNOFILE=1048576",
        *(("LimitMEMLOCK=infinity",) if plan.rig.gpus else ()),
        f"SyslogIdentifier=rigup-{name}",
    )
