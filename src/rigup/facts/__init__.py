"""pyinfra facts that pyinfra lacks. `probe` reads what a host is, in one round trip."""
