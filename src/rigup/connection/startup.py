"""What a verb that talks to hosts does before it imports anything else."""

from __future__ import annotations

import gc

COLLECT_AFTER = 50_000
"""Objects: a run imports and keeps many, and looking through them all every 700 new ones takes longer than it saves."""


def patch_for_many_hosts() -> None:
    """Lets one process talk to many hosts at once; must run before anything imports sockets for real."""
    gc.set_threshold(COLLECT_AFTER)
    from gevent import monkey

    monkey.patch_all()
