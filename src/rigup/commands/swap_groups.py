"""Services that take turns: the command and the presets of llama-server's router, and one plan for the whole group.

The router is llama-server b11434 without a model: it starts another llama-server for the model that a request names,
ends the one that was resident before once that has no request left, and holds the request meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rigup.commands.options import READ_BYTES_PER_SECOND
from rigup.plan import Plan, Swap
from rigup.systemd.presets import PRESETS

# PCI Express 5.0, x16: 32 GT/s a lane, 128 of 130 bits are data. Nothing gets weights from memory to a card faster.
MOST_BYTES_PER_SECOND = 32e9 * 16 * 128 / 130 / 8
# What the router is told itself, as its first service has it. It gives models a port, and its own alias to none.
_OF_ROUTER = ("--alias", "--host", "--port", "--threads-http", "--offline", "--no-ui")
# It sets these for a model, or passes them on in another way (see systemd/api_key.py).
_NOT_IN_PRESETS = (*_OF_ROUTER, "--api-key-file")
_OPTION = re.compile(r"--?[A-Za-z]")


def taking_turns(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """The plans of one host; those of a swap group get the group's command, and each its part in it."""
    group = [plan for plan in plans if plan.service.swap and plan.verdict == "ok"]
    if len(group) < 2:
        return tuple(plans)
    command, names = _router(group[0]), [plan.service.name for plan in group]
    widest = max(group, key=lambda plan: len(plan.memory))
    # One build serves all of them: where one is to have a library, that.
    build = next((plan.build for plan in group if plan.build and plan.build.library), group[0].build)
    shared = {"command": command, "environment": widest.environment, "build": build}
    turns = {
        plan.service.name: plan.model_copy(update={**shared, "swap": _swap(plan, names, widest)}) for plan in group
    }
    return tuple(turns.get(plan.service.name, plan) for plan in plans)


def as_groups(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """The plans of one host as its units: a swap group is one, of the name of its first service."""
    members = tuple(plan for plan in plans if plan.swap is not None)
    if not members:
        return tuple(plans)
    whole = members[0].model_copy(
        update={
            "members": members,
            "memory": max((plan.memory for plan in members), key=len),
            "host_memory_mib": max(plan.host_memory_mib or 0 for plan in members),
            "start_timeout_s": max(plan.start_timeout_s for plan in members),
            # The log of a start is that of all of them, so that nothing can be held against it.
            "runtime_mib": 0,
            "host_parts": None,
        }
    )
    return tuple(whole if plan is members[0] else plan for plan in plans if plan not in members[1:])


def _router(first: Plan) -> tuple[str, ...]:
    own = (word for name, values in _pairs(first.command) if name in _OF_ROUTER for word in (name, *values))
    return (first.command[0], "--models-preset", PRESETS, "--models-max", "1", *own)


def _swap(plan: Plan, names: Sequence[str], widest: Plan) -> Swap:
    size, memory = sum(each.bytes for each in plan.checkpoints), plan.rig.host_memory
    fastest = min(MOST_BYTES_PER_SECOND, memory.bandwidth_gbs * 1e9 if memory else MOST_BYTES_PER_SECOND)
    resident = plan.service.name == names[0]
    return Swap(
        preset=_preset(plan, resident, _devices(plan, widest)),
        others=tuple(name for name in names if name != plan.service.name),
        first=names[0],
        resident=resident,
        bytes=size,
        low=round(size / fastest, 1),
        high=round(size / READ_BYTES_PER_SECOND, 1),
    )


def _devices(plan: Plan, widest: Plan) -> str:
    """The cards of a plan among those that the group sees, as llama.cpp calls them; "" for all."""
    seen = [row.gpu for row in widest.memory]
    return ",".join(f"CUDA{seen.index(row.gpu)}" for row in plan.memory) if len(plan.memory) < len(seen) else ""


def _preset(plan: Plan, resident: bool, devices: str) -> str:
    """A section of the file. The router writes what follows a colon in its name in capitals, but not in an alias."""
    lines = [f"[{plan.served_name}]", *([f"alias = {plan.served_name}"] if ":" in plan.served_name else [])]
    lines += ["load-on-startup = true"] if resident else []
    lines += [f"device = {devices}"] if devices else []
    for name, values in _pairs(plan.command):
        if name not in _NOT_IN_PRESETS:
            lines.append(f"{name.lstrip('-')} = {values[0] if values else 'true'}")
    return "".join(f"{line}\n" for line in lines)


def _pairs(command: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each option of a command with its values."""
    found: list[tuple[str, list[str]]] = []
    for word in command[1:]:
        if _OPTION.match(word):
            found.append((word, []))
        else:
            found[-1][1].append(word)
    return iter(found)
