"""Presses a machine's power button from outside its holder process."""

from __future__ import annotations

import signal

POWER_BUTTON = signal.SIGUSR1
OFF = "off"
"""The file in the machine's folder that is there while the power button does something."""
