"""The roles that a host's plans call."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from roles.site import ENGINES, engine_role


@pytest.mark.parametrize(("engine", "method"), ENGINES)
def test_each_build_has_its_role(engine: str, method: str) -> None:
    build: Any = SimpleNamespace(engine=engine, method=method)
    assert engine_role(build).__name__ == ENGINES[engine, method][1]


def test_roles_load_nothing_that_few_hosts_need() -> None:
    rare = (
        "roles.engine_environment",
        "roles.engine_image",
        "rigup.operations.builds.controller",
        "rigup.operations.builds.records",
        "rigup.operations.builds.wheels",
        "rigup.operations.container",
        "rigup.operations.weights.host_files",
    )
    program = (
        "import sys; from rigup.run.runner import load_provision; load_provision()\n"
        "import roles.engine_llama_cpp\n"
        f"print(*(name for name in {rare} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
