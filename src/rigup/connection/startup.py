"""What a verb that talks to hosts does before it imports anything else."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_AFTER = 500_000
"""Objects: a run imports and keeps many, and looking through them all every 700 new ones takes longer than it saves."""

PLUGINS = {"PYDANTIC_DISABLE_PLUGINS": "__all__", "TYPEGUARD_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Settings of two libraries, which would search all installed packages for plugins at each start."""


def patch_for_many_hosts() -> None:
    """Lets one process talk to many hosts at once; must run before anything imports sockets for real."""
    gc.set_threshold(COLLECT_AFTER)
    for setting, value in PLUGINS.items():
        os.environ.setdefault(setting, value)
    sys.modules["invoke"] = None  # type: ignore[assignment]  # paramiko.config goes without; see pyinfra_internals
    from gevent import events, monkey

    # gevent searches all installed packages for plugins at each of 25 steps; there are none, and it took 0.05 s
    events.notify_and_call_entry_points = events.notify
    monkey.patch_all()


@contextmanager
def between_imports() -> Iterator[None]:
    """Lets connecting to the hosts go on before each module that is imported here, since all take 0.3 s."""
    import gevent

    importing = gevent.getcurrent()

    class SleepBeforeImport:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if gevent.getcurrent() is importing:
                gevent.sleep(0)

    gevent.sleep(0)  # makes gevent's loop, which imports, too
    sys.meta_path.insert(0, SleepBeforeImport)
    try:
        yield
    finally:
        sys.meta_path.remove(SleepBeforeImport)
