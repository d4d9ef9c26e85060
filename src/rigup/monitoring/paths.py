"""The paths and units on a host that provide metrics for Prometheus."""

from __future__ import annotations

UNITS = "/etc/systemd/system"
NODE_UNIT = "prometheus-node-exporter.service"
GPU_UNIT = "nvidia-dcgm-exporter.service"
# No service can have this name, because service names do not contain underscores.
TIMER = "rigup-release_metrics.timer"

NODE_FILE = f"{UNITS}/{NODE_UNIT}.d/rigup.conf"
GPU_FILE = f"{UNITS}/{GPU_UNIT}.d/rigup.conf"
TIMER_FILE = f"{UNITS}/{TIMER}"
TIMED_FILE = f"{UNITS}/{TIMER.removesuffix('.timer')}.service"
PREFERENCES = "/etc/apt/preferences.d/00-rigup-nvidia-dcgm"
TEXT_FOLDER = "/var/lib/prometheus/node-exporter"
TEXT_FILE = f"{TEXT_FOLDER}/rigup.prom"
PROGRAM = "release_metrics.py"

# The files of each exporter, and the units that they belong to.
NODE_FILES = (NODE_FILE, TIMED_FILE, TIMER_FILE)
GPU_FILES = (GPU_FILE, PREFERENCES)
NODE_UNITS = (TIMER, NODE_UNIT)
GPU_UNITS = (GPU_UNIT,)
UNIT_OF = {NODE_FILE: NODE_UNIT, TIMER_FILE: TIMER, GPU_FILE: GPU_UNIT}
