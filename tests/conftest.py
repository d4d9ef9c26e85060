"""What every test that boots machines asks for first; which tests share a worker; how far properties are searched."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from rigup.errors import MissingTool

# What `bin/test` takes by itself, and what CI and `bin/test --all` search with.
settings.register_profile(
    "brief", max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("brief")

# The only folders, beside tests/slow, that bin/test collects for tests with these marks.
FOLDERS = {"lab": ("lab",), "slow": ("lab", "golden"), "hypothesis": ("unit",), "alone": (), "rare": ()}
# Of the tests on machines, those that would keep one worker busy when the others have ended.
LONG = ("tests/lab/test_gateway.py", "tests/lab/test_side_by_side.py", "tests/lab/test_ubuntu.py")


class FilesTogether(LoadScopeScheduling):
    """Several workers share out files, and folders within tests/lab and tests/slow: what is shared is made once."""

    def _split_scope(self, nodeid: str) -> str:
        path = PurePath(nodeid.partition("::")[0])
        return str(path.parent if _in_folder_of_its_own(path) else path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesTogether | None:
    return FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first. What bin/test looks for lies where it looks."""
    for item in items:
        for mark, folders in FOLDERS.items():
            if item.get_closest_marker(mark) and not {"slow", *folders} & set(item.path.parts):
                places = " or ".join(f"tests/{folder}" for folder in ("slow", *folders))
                raise pytest.UsageError(f"{item.nodeid}: marked {mark}, so it belongs in {places}")
    items.sort(key=lambda item: not _takes_long(PurePath(item.nodeid.partition("::")[0])))


def _takes_long(path: PurePath) -> bool:
    return _in_folder_of_its_own(path) or str(path) in LONG


def _in_folder_of_its_own(path: PurePath) -> bool:
    return path.parts[1:2] in (("lab",), ("slow",)) and len(path.parts) > 3


@pytest.fixture(scope="session")
def labs_can_run() -> None:
    """Skips where this machine cannot run a lab, with what is missing; with RIGUP_REQUIRE_LAB=1 that is a failure."""
    from rigup.lab import prerequisites

    try:
        prerequisites.check()
    except MissingTool as missing:
        reason = f"{missing.message} ({missing.hint})"
        if os.environ.get("RIGUP_REQUIRE_LAB") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
