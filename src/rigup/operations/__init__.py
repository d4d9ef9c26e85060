"""pyinfra operations that pyinfra lacks: long jobs under systemd, immutable builds, verified weights, releases."""
