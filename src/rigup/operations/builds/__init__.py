"""Engine builds on hosts: compiled from source, or a Python environment from locked wheels."""
