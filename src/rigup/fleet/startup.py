"""What a verb that talks to hosts does before it imports anything else: a run that finds nothing to do is short."""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import sys
from types import ModuleType
from typing import Any

# Imported by others in case they need them. invoke: paramiko, for "Match exec" in ssh_config. requests: downloads.
SELDOM_NEEDED = ("invoke", "requests")
FEWER_COLLECTIONS = 50_000

# What every run needs once its hosts are being reached, in pieces of a few milliseconds.
NEEDED_LATER = (
    "inspect",
    "annotated_types",
    "typing_extensions",
    "pydantic_core.core_schema",
    "pydantic_core",
    "typing_inspection.introspection",
    "pydantic.version",
    "pydantic.errors",
    "pydantic.config",
    "pydantic.aliases",
    "pydantic.annotated_handlers",
    "pydantic.json_schema",
    "pydantic.functional_validators",
    "pydantic.fields",
    "pydantic.types",
    "pydantic.main",
    "pydantic",
    "rigup.units",
    "rigup.environment",
    "rigup.rig",
    "rigup.lock",
    "rigup.node",
    "rigup.service",
    "rigup.plan",
    "rigup.fleet.sets",
    "tomllib",
    "rigup.catalogue.drivers",
    "rigup.facts.gpus",
    "rigup.facts.host",
    "rigup.facts.probe",
    "rigup.operations.jobs",
    "rigup.verify.generation",
    "rigup.operations.wheels",
    "rigup.fleet.settings",
    "rigup.fleet.preflight_driver",
    "rigup.fleet.preflight",
    "rigup.fleet.records",
    "rigup.fleet.runner",
    "dateutil.parser",
    "pyinfra.facts.server",
    "pyinfra.facts.apt",
    "pyinfra.facts.files",
    "rigup.operations.packages",
    "rigup.operations.builds",
    "rigup.operations.container_toolkit",
    "rigup.operations.releases",
    "rich.style",
    "rich.text",
    "rich.console",
)
# What a run needs beside that where plans are made, and not those of last time taken.
NEEDED_TO_PLAN = (
    "rigup.catalogue.checkpoint",
    "rigup.catalogue.engines",
    "rigup.catalogue.catalogue",
    "rigup.catalogue.containers",
    "rigup.planner.rules",
    "rigup.planner.decide",
    "rigup.planner.reading",
    "rigup.render.plan_service",
    "rigup.fleet.planning",
)


def import_by_and_by(planning: bool) -> None:
    """Imports what a run needs, and lets connections that have begun get on in between.

    planning: whether plans are to be made.
    """
    import gevent

    for name in (*NEEDED_LATER, *(NEEDED_TO_PLAN if planning else ())):
        importlib.import_module(name)
        gevent.idle()
    gc.freeze()  # what is imported stays, and need not be looked at again and again
    gc.enable()


def patch_for_many_hosts() -> None:
    """Lets one process talk to many hosts at once; must run before anything imports sockets for real."""
    gc.set_threshold(FEWER_COLLECTIONS)
    import gevent.events
    from gevent import monkey

    # gevent asks every installed distribution, 25 times over, whether it has a plugin that wants to know of this
    gevent.events.notify_and_call_entry_points = gevent.events.notify
    monkey.patch_all()
    importlib.metadata.entry_points = _of_pyinfra_alone  # type: ignore[assignment]
    for name in SELDOM_NEEDED:
        sys.modules.setdefault(name, _Later(name))
    _import_typeguard()


def _of_pyinfra_alone(**wanted: Any) -> importlib.metadata.EntryPoints:
    """pyinfra, pydantic and typeguard each read anew what all installed distributions offer; pyinfra's will do."""
    return importlib.metadata.distribution("pyinfra").entry_points.select(**wanted)


def _import_typeguard() -> None:
    """pyinfra's type checks know a mock when they see one; all of unittest and asyncio is a high price for that."""
    if "unittest.mock" in sys.modules:
        return
    stand_in = ModuleType("unittest.mock")
    stand_in.__dict__.update(Mock=type("Mock", (), {}), patch=None)
    sys.modules["unittest.mock"] = stand_in
    try:
        importlib.import_module("typeguard")
    finally:
        del sys.modules["unittest.mock"]


class _Later(ModuleType):
    """Stands in for a module until somebody looks into it; then the real one is imported, and takes its place."""

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") and attribute != "__path__":
            raise AttributeError(attribute)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), attribute)
