"""The unit that sets the GPUs' power limit at every boot, because the driver forgets it when it is unloaded."""

from __future__ import annotations

UNIT = "rigup-power-limit.service"
PATH = f"/etc/systemd/system/{UNIT}"
NVIDIA_SMI = "/usr/bin/nvidia-smi"


def power_unit(limit_w: int) -> str:
    """The unit's text. limit_w: watts, for every GPU."""
    return f"""\
# Written by rigup: rig.power_limit_w
[Unit]
Description=rigup: power limit of {limit_w} W for every GPU
Wants=nvidia-persistenced.service
After=nvidia-persistenced.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={NVIDIA_SMI} --power-limit={limit_w}

[Install]
WantedBy=multi-user.target
"""
