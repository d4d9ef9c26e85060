"""Where lab machines get packages: a proxy for this machine's registries, and stand-ins for NVIDIA's repositories."""
