"""What a verb that talks to hosts does before it imports anything else: a run that finds nothing to do is short."""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

# Imported by others in case they need them. invoke: paramiko, for "Match exec" in ssh_config. requests: downloads.
SELDOM_NEEDED = ("invoke", "requests")
# What pyinfra imports from others for what rigup seldom has it do: templates, and the versions of Python packages.
SELDOM_CALLED = {
    "jinja2": ("Environment", "FileSystemLoader", "StrictUndefined", "Template"),
    "packaging.markers": ("Marker",),
    "packaging.requirements": ("Requirement",),
    "packaging.specifiers": ("SpecifierSet",),
    "packaging.version": ("Version",),
}
# Errors among it, and what they are, too.
SELDOM_CAUGHT: dict[str, dict[str, type[Exception]]] = {
    "jinja2": dict.fromkeys(("TemplateRuntimeError", "TemplateSyntaxError", "UndefinedError"), Exception),
    "packaging.requirements": {"InvalidRequirement": ValueError},
}
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
    "dateutil.parser",
    "pyinfra.facts.server",
    "pyinfra.facts.apt",
    "pyinfra.facts.files",
    "pyinfra.operations.files",
    "pyinfra.operations.util.packaging",
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
        if name.startswith("pyinfra."):
            _import_of_pyinfra(name)
        else:
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
    _import_of_pyinfra("pyinfra.api")


def _of_pyinfra_alone(**wanted: Any) -> importlib.metadata.EntryPoints:
    """pyinfra, pydantic and typeguard each read anew what all installed distributions offer; pyinfra's will do."""
    return importlib.metadata.distribution("pyinfra").entry_points.select(**wanted)


def _import_typeguard() -> None:
    """pyinfra's type checks know a mock when they see one; all of unittest and asyncio is a high price for that."""
    with _standing_in({"unittest.mock": {"Mock": type("Mock", (), {}), "patch": None}}):
        importlib.import_module("typeguard")


def _import_of_pyinfra(name: str) -> None:
    """A module of pyinfra; what that takes from others in case it needs it comes when it is called."""
    called = {module: {each: _CalledLater(module, each) for each in names} for module, names in SELDOM_CALLED.items()}
    with _standing_in({module: {**names, **SELDOM_CAUGHT.get(module, {})} for module, names in called.items()}):
        importlib.import_module(name)


@contextmanager
def _standing_in(modules: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Within it these modules are what is said here, but for those that are loaded already."""
    missing = [name for name in modules if name not in sys.modules]
    for name in missing:
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(modules[name])
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


class _CalledLater:
    """Stands in for a class until it is called."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._real()(*map(_real, given), **{name: _real(value) for name, value in named.items()})

    def _real(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)


def _real(value: Any) -> Any:
    return value._real() if isinstance(value, _CalledLater) else value


class _Later(ModuleType):
    """Stands in for a module until somebody looks into it; then the real one is imported, and takes its place."""

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") and attribute != "__path__":
            raise AttributeError(attribute)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), attribute)
