"""What a role of a fleet's own may use: everything in `__all__`, and pyinfra.

A file roles/NAME.py beside inventories/ marks functions with `before` or `after`. `rigup apply` calls them for each
host, before or after the toolkit's roles, with what is known of the host; they call operations of pyinfra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rigup.errors import HostFailed
from rigup.plan import Plan

__all__ = ["HostFailed", "Plan", "RoleHost", "after", "before"]

When = Literal["before", "after"]
MARK = "__rigup_when__"


@dataclass(frozen=True)
class RoleHost:
    """The host that a role is called for.

    data: what inventory and group_data say of it. plans: of its services. os: "debian-12". architecture: "x86_64".
    """

    name: str
    group: str
    data: Mapping[str, Any]
    plans: tuple[Plan, ...]
    os: str
    architecture: str


OwnRole = Callable[[RoleHost], None]


def before(role: OwnRole) -> OwnRole:
    """Marks a role that runs before all of the toolkit's: users, repositories, a mounted disk."""
    return _marked(role, "before")


def after(role: OwnRole) -> OwnRole:
    """Marks a role that runs after all of the toolkit's, once the services have answered."""
    return _marked(role, "after")


def _marked(role: OwnRole, when: When) -> OwnRole:
    setattr(role, MARK, when)
    return role
