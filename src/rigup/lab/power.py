"""Presses a machine's power button from outside its holder process."""

from __future__ import annotations

import signal

POWER_BUTTON = signal.SIGUSR1
OFF = "off"
"""A file in the machine's folder that exists while the power button has an effect."""
