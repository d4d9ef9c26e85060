"""NVIDIA's driver and CUDA on hosts: packages, kernel modules, fabric manager, power limits, reboots."""
