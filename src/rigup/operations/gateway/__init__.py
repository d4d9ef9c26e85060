"""A gateway on its host: HAProxy's package, its files, and what the running process knows."""
