"""Tuned fused-MoE kernels where the engine looks for them, outside of its package."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.moe_configs import moe_folder
from rigup.plan import MoeFolder


@deploy("kernels")
def moe_configs(folder: MoeFolder, build: str) -> None:
    """Have the folder that a plan points its service at. build: the folder of the engine's build."""
    moe_folder(name=f"tuned kernels {folder.path.rpartition('/')[2]}", folder=folder, build=build)
