"""Facts about what runs beside an engine: podman, exporters, the evaluation harness, tuners of kernels."""
