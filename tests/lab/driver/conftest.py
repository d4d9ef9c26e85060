"""One machine for the tests of NVIDIA's driver, which takes longer to install than all else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.gpu_fleet import OLD, GpuFleet, made_gpu_fleet


@pytest.fixture(scope="session")
def shared(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """One machine with four cards, at first with nothing installed."""
    with made_gpu_fleet(tmp_path_factory, "driver") as fleet:
        yield fleet


@pytest.fixture(scope="module")
def fleet(shared: GpuFleet) -> GpuFleet:
    """The machine as the file before has left it, or bare, and a lock that pins the older driver."""
    shared.describe_gpus(OLD)
    return shared
