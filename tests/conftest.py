"""What every test that boots machines asks for first."""

from __future__ import annotations

import os

import pytest

from rigup.errors import MissingTool


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
