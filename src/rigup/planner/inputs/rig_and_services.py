"""Reads raw values of a group_data file into Rig and Service.

Every error names the file, the path to the value, and what to do.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from rigup import layout
from rigup.catalogue.catalogue import Catalogue
from rigup.catalogue.gpu_names import matching, nearest, short_name
from rigup.errors import InputError
from rigup.node import Network
from rigup.plain_values import quoted
from rigup.planner.inputs.validation import check_keys, validated
from rigup.planner.multinode.ports import JOIN_PORTS_ABOVE, join_port, watch_port
from rigup.rig import SUPPORTED_OS, Gpu, HostMemory, Rig, RigInput
from rigup.service import FlagValue, Service, Speculative, location_of

_COUNTED = re.compile(r"^\s*([0-9]{1,9})\s*[x*]\s*(.+)$", re.IGNORECASE)
_MOST_GPUS = 64
_LAST_PORT = 65_535
_RIG_EXAMPLE = 'write it like rig = {"gpus": "4x RTX 3090"}'
_MEMORY_EXAMPLE = 'write it like "8x DDR5-4800", with as many channels as have a module'
_SUBNET_EXAMPLE = 'write it like "192.168.100.0/24"'
_SERVICES_EXAMPLE = 'write it like services = {"chat": {"model": "MiniMax-M2.5"}}'
_SPECULATIVE_EXAMPLE = 'write "mtp", or a table like {"kind": "draft", "model": "Qwen/Qwen3-0.6B", "tokens": 3}'
# What services that take turns (`swap`) must have in common, because one process serves all of them.
_IN_COMMON = (
    "listen",
    "port",
    "api_key_file",
    "gpus",
    "version",
    "build",
    "quick_build",
    "drain_timeout",
    "environment",
)


def read_rig(data: object, path: str, catalogue: Catalogue) -> Rig:
    """Reads the rig from `rig = ...` in the file `path`.

    gpus: "4x RTX 3090", a list of names, or [] or "none" for a machine without GPUs.
    Raises InputError, whose message begins with the path to the value.
    """
    if not isinstance(data, dict):
        raise InputError(f"{path}: rig: must be a table, not {quoted(data)}", _RIG_EXAMPLE)
    check_keys(data, RigInput, f"{path}: rig")
    if "gpus" not in data:
        raise InputError(f"{path}: rig.gpus: missing", _RIG_EXAMPLE + ", or [] for a machine without GPUs")
    gpus = read_gpus(data["gpus"], f"{path}: rig.gpus", catalogue)
    if isinstance(data.get("network"), dict):
        check_keys(data["network"], Network, f"{path}: rig.network")
    rest = {key: value for key, value in data.items() if key != "gpus"}
    checked = validated(RigInput, {"gpus": "none", **rest}, f"{path}: rig")
    if checked.os is not None and checked.os not in SUPPORTED_OS:
        raise InputError(
            f"{path}: rig.os: {quoted(checked.os)} is not supported", f"use one of: {', '.join(SUPPORTED_OS)}"
        )
    _check_power_limit(checked.power_limit_w, gpus, f"{path}: rig.power_limit_w")
    _check_subnet(checked.network.subnet, f"{path}: rig.network.subnet")
    memory = _read_host_memory(checked.host_memory, f"{path}: rig.host_memory")
    return Rig(**{**dict(checked), "gpus": gpus, "host_memory": memory})


def keeps_driver(data: Mapping[str, object], where: str) -> bool:
    """Whether `driver = "keep"` leaves each host's own driver alone. where: the file. Raises InputError for another."""
    if (value := data.get("driver")) not in (None, "keep"):
        raise InputError(
            f"{where}: driver: {quoted(value)} is not a choice",
            'write driver = "keep" to leave each host\'s own driver alone; its version is in rigup.lock: '
            "rigup lock --upgrade driver=VERSION",
        )
    return value == "keep"


def _read_host_memory(text: str | None, where: str) -> HostMemory | None:
    memory = HostMemory.read(text) if text is not None else None
    if text is not None and memory is None:
        raise InputError(f"{where}: {quoted(text)} does not say channels, kind and speed", _MEMORY_EXAMPLE)
    return memory


def _check_subnet(subnet: str | None, where: str) -> None:
    if subnet is None:
        return
    try:
        version = ipaddress.ip_network(subnet).version
    except ValueError:
        raise InputError(f"{where}: {quoted(subnet)} is not a network", _SUBNET_EXAMPLE) from None
    if version != 4:
        raise InputError(
            f"{where}: {quoted(subnet)} is not an IPv4 network, which engines across hosts need", _SUBNET_EXAMPLE
        )


def _check_power_limit(limit: int | None, gpus: tuple[Gpu, ...], where: str) -> None:
    """Raises InputError if the GPUs have no power limit. Its range depends on the board; NVML on the host knows it."""
    if limit is not None and not gpus:
        raise InputError(f"{where}: this rig has no GPU to limit", "leave it out")
    for gpu in gpus if limit is not None else ():
        if gpu.power_range_w is None:
            raise InputError(
                f"{where}: {short_name(gpu.name)} does not have a configurable power limit", "leave it out"
            )


def read_gpus(value: object, where: str, catalogue: Catalogue) -> tuple[Gpu, ...]:
    if value == "none":
        return ()
    if isinstance(value, str):
        return _read_gpu(value, where, catalogue)
    if not isinstance(value, (list, tuple)):
        raise InputError(
            f'{where}: must be a list of names or text like "4x RTX 3090", not {quoted(value)}', _RIG_EXAMPLE
        )
    gpus: tuple[Gpu, ...] = ()
    for number, item in enumerate(value):
        if not isinstance(item, str):
            raise InputError(f"{where}[{number}]: must be a GPU's name, not {quoted(item)}", _RIG_EXAMPLE)
        gpus += _read_gpu(item, f"{where}[{number}]", catalogue)
    return _limited(gpus, len(gpus), where)


def _read_gpu(text: str, where: str, catalogue: Catalogue) -> tuple[Gpu, ...]:
    counted = _COUNTED.match(text)
    count, name = (int(counted[1]), counted[2].strip()) if counted else (1, text.strip())
    if count < 1:
        raise InputError(f"{where}: {quoted(text)} asks for no GPU", "write [] for a machine without GPUs")
    found = matching(name, catalogue.gpus)
    if not found:
        near = nearest(name, catalogue.gpus)
        hint = f'try "{near}"' if near else "name a known GPU, or add this one to catalogue/gpus/"
        raise InputError(f"{where}: unknown GPU {quoted(name)}", hint)
    if len(found) > 1:
        candidates = ", ".join(f'"{short_name(gpu.name)}"' for gpu in found)
        raise InputError(f"{where}: {quoted(name)} is ambiguous", f"write one of {candidates}")
    return _limited((found[0],), count, where)


def _limited(gpus: tuple[Gpu, ...], count: int, where: str) -> tuple[Gpu, ...]:
    if count > _MOST_GPUS:
        raise InputError(f"{where}: {count} GPUs are more than one host can have", f"write at most {_MOST_GPUS}")
    return gpus if len(gpus) == count else gpus * count


def read_services(data: object, path: str, rig: Rig | None = None) -> tuple[Service, ...]:
    """Reads the services from `services = ...` in the file `path`, in the order of the file; () for none.

    rig: if it spans several hosts, the ports between them are checked too.
    `rigup.planner.inputs.names.resolve` checks that the names exist.
    Raises InputError, whose message begins with the path to the value.
    """
    if not isinstance(data, dict):
        raise InputError(f"{path}: services: must be a table, not {quoted(data)}", _SERVICES_EXAMPLE)
    services = tuple(_read_service(name, value, path) for name, value in data.items())
    enabled = tuple(service for service in services if service.enabled)
    _check_ports(enabled, path)
    _check_swap(services, path)
    if rig is not None and rig.hosts_per_service > 1:
        _check_join_ports(enabled, path)
    return services


def check_service_name(name: object, where: str) -> str:
    """The name of a service. Raises InputError for what cannot be one, and for one that rigup uses itself."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name):
        raise InputError(
            f"{where}: {quoted(name)} is not a valid service name",
            "use lower-case letters, digits and dashes, a letter first, at most 31 characters",
        )
    if layout.is_own(name):
        raise InputError(
            f"{where}: {quoted(name)} is not a valid service name",
            f"choose another name: rigup uses {layout.unit_name(name)} itself",
        )
    return name


def _read_service(name: object, value: object, path: str) -> Service:
    where = f"{path}: services.{name}"
    name = check_service_name(name, f"{path}: services")
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be a table, not {quoted(value)}", _SERVICES_EXAMPLE)
    if "name" in value:
        raise InputError(f"{where}.name: unknown key", f'leave it out: the service is already called "{name}"')
    check_keys(value, Service, where)
    if "model" not in value and "checkpoint" not in value:
        raise InputError(f'{where}: neither "model" nor "checkpoint" is set', _SERVICES_EXAMPLE)
    drafting = _read_speculative(value.get("speculative"), f"{where}.speculative")
    service = validated(Service, {**value, "speculative": None, "name": name}, where)
    service = service.model_copy(update={"speculative": drafting})
    service = service.model_copy(update={"flags": normalize_flags(service.flags, where)})
    try:
        location_of(service.checkpoint or "")
    except ValueError as error:
        raise InputError(
            f"{where}.checkpoint: {quoted(service.checkpoint)} is {error}", "rename the file, or correct the name"
        ) from None
    check_listen(service.listen, f"{where}.listen")
    for variable in service.environment:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise InputError(
                f"{where}.environment: {quoted(variable)} is not a valid variable name",
                "use letters, digits and underscores",
            )
    return service


def _read_speculative(value: object, where: str) -> Speculative | None:
    """What drafts tokens; None for None and False. Raises InputError, whose message begins with the path."""
    if value is None or value is False:
        return None
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be text or a table, not {quoted(value)}", _SPECULATIVE_EXAMPLE)
    check_keys(value, Speculative, where)
    if "kind" not in value:
        raise InputError(f"{where}.kind: missing", _SPECULATIVE_EXAMPLE)
    found = validated(Speculative, value, where)
    if found.kind == "mtp" and (named := next((key for key in ("model", "quant") if getattr(found, key)), None)):
        raise InputError(f"{where}.{named}: MTP layers are in the checkpoint itself", "leave it out")
    if found.kind != "mtp" and not found.model:
        raise InputError(f"{where}.model: missing", _SPECULATIVE_EXAMPLE)
    return found


def normalize_flags(flags: dict[str, FlagValue], where: str) -> dict[str, FlagValue]:
    """The flags in the engines' spelling: "--max_model_len" becomes "--max-model-len", as in vLLM and llama.cpp.

    The part after a dot is a key of the value and stays. Raises InputError if an option occurs in two spellings.
    """
    spelled: dict[str, FlagValue] = {}
    written: dict[str, str] = {}
    for name, value in flags.items():
        option, dot, key = name.partition(".")
        plain = (option.replace("_", "-") if option.startswith("--") else option) + dot + key
        if plain in spelled:
            raise InputError(
                f"{where}.flags: {quoted(name)} and {quoted(written[plain])} are the same option",
                "leave one of them out",
            )
        spelled[plain], written[plain] = value, name
    return spelled


def check_listen(text: str, where: str) -> None:
    """Raises InputError for an address at which no host can listen: neither an IP address nor localhost."""
    try:
        ipaddress.ip_address(text)
        fits = re.fullmatch(r"[0-9A-Fa-f.:]+(%[\w.-]+)?", text)  # the zone of an IPv6 address may be any text
    except ValueError:
        fits = None
    if not fits and text != "localhost":
        raise InputError(
            f"{where}: {quoted(text)} is not a host address",
            'use "127.0.0.1" for this host only, "0.0.0.0" for all networks, or one address of the host',
        )


def _check_ports(services: tuple[Service, ...], path: str) -> None:
    taken: dict[int, Service] = {}
    for service in services:
        other = taken.get(service.port)
        if other is not None and not (service.swap and other.swap):
            raise InputError(
                f"{path}: services.{service.name}.port: {service.port} is taken by {other.name}",
                "give each service of a host its own port",
            )
        taken[service.port] = service


def _check_join_ports(services: tuple[Service, ...], path: str) -> None:
    taken = {service.port: f"the API of {service.name}" for service in services}
    for service in services:
        port, where = join_port(service), f"{path}: services.{service.name}.join_port"
        if port > _LAST_PORT:
            raise InputError(
                f"{where}: missing, and the default, port {service.port} plus {JOIN_PORTS_ABOVE:,}, is not a valid "
                "port",
                "set a port that is free on every host",
            )
        if port in taken:
            raise InputError(f"{where}: {port} is taken by {taken[port]}", "choose another port")
        taken[port] = f"traffic between the hosts of {service.name}"
    for service in services:
        if (port := watch_port(service)) in taken:
            raise InputError(
                f"{path}: services.{service.name}.port: {service.port} makes the head listen on {port} for the other "
                f"hosts, but that is taken by {taken[port]}",
                "choose another port for one of them",
            )
        taken[port] = f"the head of {service.name}"


def _check_swap(services: tuple[Service, ...], path: str) -> None:
    """Raises InputError, whose message begins with `<path>: services.<name>.<key>`, for what takes no turns."""
    group = [service for service in services if service.swap]
    if len(group) == 1:
        raise InputError(
            f"{path}: services.{group[0].name}.swap: no other service takes turns with it",
            'write "swap": True in another service, too, or leave it out',
        )
    for service in group[1:]:
        first = group[0]
        for key in _IN_COMMON:
            mine, theirs = getattr(service, key), getattr(first, key)
            if mine != theirs:
                raise InputError(
                    f"{path}: services.{service.name}.{key}: {_said(mine)} differs from the {_said(theirs)} of "
                    f"{first.name}, with which it takes turns",
                    f"give both the same {key}",
                )


def _said(value: object) -> str:
    return "default" if value is None else quoted(list(value) if isinstance(value, tuple) else value)
