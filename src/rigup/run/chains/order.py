"""The steps of a host, in the order of roles/site.py: what each needs, and which run beside the others. Pure.

Most steps follow one another: apt works for one at a time, and a reboot ends a compilation. A step beside them mostly
downloads. It begins once what it needs is done, continues after a reboot, and is waited for by the steps that need it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """name: as a summary shows it. roles: the deploys that carry it out. needs: names of steps. beside: see above."""

    name: str
    roles: tuple[str, ...]
    needs: tuple[str, ...] = ()
    beside: bool = False


STEPS = (
    Step("own roles", roles=("before",)),
    Step("base", roles=("base",), needs=("own roles",)),
    Step("weights", roles=("weights",), needs=("base",), beside=True),
    Step("driver", roles=("repository", "driver", "fabric"), needs=("base",)),
    Step("toolkit", roles=("cuda",), needs=("driver",)),
    Step("power limit", roles=("power",), needs=("driver",)),
    Step("containers", roles=("containers",), needs=("driver",)),
    Step("network", roles=("ray", "firewall"), needs=("base",)),
    Step("environment", roles=("environment",), needs=("base",), beside=True),
    Step("image", roles=("image",), needs=("containers",), beside=True),
    Step("build", roles=("engine",), needs=("toolkit",)),
    Step("judgement", roles=("judgement",), needs=("driver", "environment", "build"), beside=True),
    Step("kernels", roles=("kernels",), needs=("environment", "image", "build")),
    Step("removal", roles=("hub token", "stop", "remove")),
    Step("start", roles=("service",), needs=("weights", "power limit", "network", "kernels", "judgement")),
    Step("gateway", roles=("gateway",), needs=("base",)),
    Step("exporters", roles=("monitoring",)),
    Step("own roles after", roles=("after",), needs=("start",)),
)
REBOOT = "reboot"
"""The part of a step during which the host reboots, as a summary shows it."""

_BY_ROLE = {role: step for step in STEPS for role in step.roles}


def step_of(name: str) -> Step:
    """The step of an operation by its full name: the outermost of its roles that is listed.

    Without one it is a step by itself that needs all steps beside it.
    """
    *roles, _ = name.split(" | ")
    listed = (_BY_ROLE[role] for role in roles if role in _BY_ROLE)
    waits = tuple(step.name for step in STEPS if step.beside)
    return next(listed, None) or Step(roles[-1] if roles else name, (), needs=waits)


def may_begin(step: Step, unfinished: Collection[str]) -> bool:
    """Whether nothing that the step needs is unfinished, directly or through another step."""
    return not any(name in unfinished for name in all_needs(step))


def all_needs(step: Step) -> tuple[str, ...]:
    """The names of everything that must be done before a step, in the order of STEPS."""
    found = set(step.needs)
    for earlier in reversed(STEPS):
        if earlier.name in found:
            found.update(earlier.needs)
    return tuple(each.name for each in STEPS if each.name in found)
