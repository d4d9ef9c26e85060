"""pyinfra facts that pyinfra lacks. `probe` is the one that reads what a host really is, in one round trip."""
