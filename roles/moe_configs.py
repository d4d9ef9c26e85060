"""Tuned fused-MoE kernels in the folder that the engine reads, outside of its package."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.service.moe_configs import moe_folder
from rigup.plan import MoeFolder


@deploy("kernels")
def moe_configs(folder: MoeFolder, build: str) -> None:
    """Create the folder that the service's environment names. build: the folder of the engine's build."""
    moe_folder(name=f"tuned kernels {folder.path.rpartition('/')[2]}", folder=folder, build=build)
