"""A service on a host: numbered releases, secrets, GPU binding, health check, rollback, removal."""
