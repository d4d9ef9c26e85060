"""Package sources of lab machines: a proxy for this machine's registries, and stand-ins for NVIDIA's repositories."""
