"""The systemd unit of a service: its own user, only the devices it needs, and a sandbox."""

from __future__ import annotations

import hashlib

from rigup.layout import CUDA_HOME, WEIGHTS, service_cache, service_folder, stopped_file
from rigup.plan import BoundPlan, Build
from rigup.systemd.api_key import CREDENTIAL_NAME, is_loopback, wants_key, wrapped
from rigup.systemd.draining import stop_lines, stop_seconds
from rigup.systemd.nftables import is_closed, load, unload
from rigup.systemd.port_guard import closing_unit, is_guarded, start_lines
from rigup.systemd.presets import preset_lines
from rigup.systemd.quoting import command_line, environment_line, plain_text, unit_file
from rigup.systemd.ray import VARIABLES, with_ray
from rigup.systemd.run_together import watched
from rigup.systemd.sampling import sampling_lines

# Linux allows 32 bytes for a user name, systemd one less.
LONGEST_USER = 31
SYSTEM_CALLS = "@system-service"
# systemd's own for services: systemd.exec(5), Environment variables in spawned processes
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"

# CUDA and llama.cpp accept UUIDs. SGLang 0.5.23 parses CUDA_VISIBLE_DEVICES as integers when it looks for NVLink
# (distributed/device_communicators/custom_all_reduce_utils.py); vLLM did up to at least 0.20 (its issues 20939, 41848).
_BY_INDEX = ("vllm", "sglang")

FIND_INDICES = (
    'set -eu; found=""; for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , " "); do '
    'index=$(nvidia-smi --id="$gpu" --query-gpu=index --format=csv,noheader); found="$found,$index"; done; '
    'CUDA_VISIBLE_DEVICES="${found#,}"; export CUDA_VISIBLE_DEVICES; exec "$0" "$@"'
)

SANDBOX = (
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "LockPersonality=yes",
    "PrivateTmp=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHome=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectProc=invisible",
    "ProtectSystem=strict",
    "RemoveIPC=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    f"SystemCallFilter={SYSTEM_CALLS}",
    "SystemCallErrorNumber=EPERM",
    "UMask=0077",
)


def unit(plan: BoundPlan, build_folder: str) -> str:
    """The unit file of an accepted plan, for a build in `build_folder`; ends with a newline."""
    if plan.build is None or not (plan.command or plan.on_ray):
        raise ValueError(f"no command to run: the plan for {plan.host} is {plan.verdict}")
    sections = {
        "Unit": unit_section(plan),
        "Service": (*_process(plan, build_folder), *_folders(plan, build_folder), *_sandbox(plan)),
        "Install": ("WantedBy=multi-user.target",),
    }
    return unit_file(sections)


def user_name(service: str) -> str:
    """The user that runs a service: rigup-<service>, shortened with a hash if it is too long for Linux."""
    name = f"rigup-{service}"
    if len(name) <= LONGEST_USER:
        return name
    digest = hashlib.sha256(service.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_USER - 9]}-{digest}"


def unit_section(plan: BoundPlan) -> tuple[str, ...]:
    """The lines of [Unit], which are the same for every kind of build."""
    assert plan.build is not None
    what = (
        f"{', '.join(each.served_name for each in plan.members or (plan,))} on {plan.build.engine} {plan.build.version}"
    )
    after = "network-online.target nvidia-persistenced.service" if plan.rig.gpus else "network-online.target"
    after += " nftables.service" if is_closed(plan) else ""  # its rules often begin with "flush ruleset"
    closing = f" {closing_unit(plan.service.port)}" if is_guarded(plan) else ""
    return (
        f"Description={plain_text(f'rigup service {plan.service.name}: {what}')}",
        f"Wants=network-online.target{closing}",
        f"After={after}{closing}",
        f"ConditionPathExists=!{stopped_file(plan.service.name)}",
        *(f"RequiresMountsFor={each.host_folder}" for each in plan.checkpoints if each.shown_files),
        # A host of a node group may wait long for another one, and must still run when that one comes back.
        *(("StartLimitIntervalSec=0",) if plan.nodes else ("StartLimitIntervalSec=900", "StartLimitBurst=5")),
    )


def _process(plan: BoundPlan, build_folder: str) -> tuple[str, ...]:
    assert plan.build is not None
    words = tuple(f"{build_folder}/{word}" for word in plan.command[:1]) + plan.command[1:]
    if _has_key(plan):
        words = wrapped(plan.build.engine, words, swaps=bool(plan.members))
    if plan.on_ray:
        words = with_ray(plan, build_folder, words)
    words = watched(plan, _with_its_gpus(plan, words))
    home = service_cache(plan.service.name, build_folder.rpartition("/")[2])
    variables = {
        **caches(plan, home),
        **compiler_environment(plan.build, build_folder),
        **(VARIABLES if plan.on_ray else {}),
    }
    variables |= plan.environment
    return (
        "Type=exec",
        *_firewall(plan),
        *start_lines(plan),
        f"ExecStartPre=/usr/bin/mkdir -p {home}",
        *sampling_lines(plan, build_folder),
        f"ExecStart={command_line(words)}",
        *stop_lines(plan),
        *(f"Environment={environment_line(name, value)}" for name, value in variables.items()),
        # vLLM 0.32.0 exits with 0 when another host of its service is gone.
        f"Restart={'always' if plan.nodes else 'on-failure'}",
        "RestartSec=10",
        f"TimeoutStartSec={plan.start_timeout_s}",
        f"TimeoutStopSec={stop_seconds(plan)}",
        "KillMode=mixed",
        "LimitNOFILE=1048576",
        *(("LimitMEMLOCK=infinity",) if plan.rig.gpus else ()),
        "StandardOutput=journal",
        "StandardError=journal",
        f"SyslogIdentifier=rigup-{plan.service.name}",
    )


def _with_its_gpus(plan: BoundPlan, words: tuple[str, ...]) -> tuple[str, ...]:
    """Behind a shell that looks up the GPUs' indices at the engine's start; unchanged if the engine accepts UUIDs."""
    assert plan.build is not None
    if not plan.gpu_uuids or plan.build.engine not in _BY_INDEX:
        return words
    return ("/bin/sh", "-c", FIND_INDICES, *words)


def caches(plan: BoundPlan, home: str) -> dict[str, str]:
    """Where a build keeps what it compiles: below its home, because engines do not know each other's files.

    PyTorch's default is /tmp, which goes with the service (torch 2.13.0 torch/_inductor/runtime/cache_dir_utils.py).
    """
    assert plan.build is not None
    inductor = {} if plan.build.engine == "llama.cpp" else {"TORCHINDUCTOR_CACHE_DIR": f"{home}/.cache/torchinductor"}
    return {"HOME": home, **inductor}


def compiler_environment(build: Build, build_folder: str) -> dict[str, str]:
    """Where an engine finds what it compiles GPU kernels with: its own programs (ninja), and CUDA's compiler."""
    if not build.own_compiler:
        return {}
    home = f"{build_folder}/{CUDA_HOME}"
    return {"PATH": f"{build_folder}/bin:{home}/bin:{SYSTEM_PATH}", "CUDA_HOME": home}


def _firewall(plan: BoundPlan) -> tuple[str, ...]:
    """The lines for the service's firewall table, run as root outside the sandbox; the service needs it to start."""
    if not is_closed(plan):
        return ()
    return (f"ExecStartPre=+{command_line(load(plan))}", f"ExecStopPost=-+{command_line(unload(plan.service.name))}")


def _folders(plan: BoundPlan, build_folder: str) -> tuple[str, ...]:
    name = plan.service.name
    credential = f"LoadCredential={CREDENTIAL_NAME}:{service_folder(name)}/{CREDENTIAL_NAME}"
    return (
        "DynamicUser=yes",
        f"User={user_name(name)}",
        f"CacheDirectory=rigup/{name}",
        "CacheDirectoryMode=0700",
        f"RuntimeDirectory=rigup-{name}",
        "RuntimeDirectoryMode=0700",
        f"WorkingDirectory={service_cache(name)}",
        f"ReadOnlyPaths={WEIGHTS} {build_folder}",
        *(f"BindReadOnlyPaths={real}:{shown}" for shown, real in _shown_files(plan).items()),
        *((credential,) if _has_key(plan) else ()),
        *preset_lines(plan),
    )


def _shown_files(plan: BoundPlan) -> dict[str, str]:
    return {shown: real for each in plan.checkpoints for shown, real in each.shown_files.items()}


def _has_key(plan: BoundPlan) -> bool:
    """Whether this host needs the key: in a node group, only the head serves the API."""
    return wants_key(plan.service) and plan.rank == 0


def _sandbox(plan: BoundPlan) -> tuple[str, ...]:
    assert plan.build is not None
    lines = [*SANDBOX, *_callers(plan)]
    if plan.rig.gpus:
        # PrivateDevices would hide the cards; CUDA, Triton and torch.compile write code and then run it.
        lines += ["DevicePolicy=closed", "DeviceAllow=char-nvidia* rw"]
        if plan.nodes:
            lines += ["DeviceAllow=char-infiniband_verbs rw"]  # NCCL opens it for RDMA
    else:
        lines += ["PrivateDevices=yes", "PrivateUsers=yes"]
    if plan.rig.gpus or plan.build.engine != "llama.cpp":
        return (*lines, "RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX")
    lines += ["MemoryDenyWriteExecute=yes", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX"]
    if is_loopback(plan.service.listen) and not plan.nodes:
        lines += ["IPAddressDeny=any", "IPAddressAllow=localhost"]
    return tuple(lines)


def _callers(plan: BoundPlan) -> tuple[str, ...]:
    """Lets only the head reach llama.cpp's RPC servers, which have no authentication, and the head only them."""
    if not any(peer.purpose == "rpc" for peer in plan.peer_ports):
        return ()
    if plan.rank:
        allowed = [plan.nodes[0].address]
    elif is_loopback(plan.service.listen):
        allowed = [node.address for node in plan.nodes[1:]]
    else:
        return ()
    return ("IPAddressDeny=any", f"IPAddressAllow={' '.join(('localhost', *allowed))}")
