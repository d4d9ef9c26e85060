"""Simulated GPUs of lab machines: their description, faults, and NVML library."""
