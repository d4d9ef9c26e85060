"""The benchmark client. `rigup.bench.client` sends its modules to a host, where they keep their full names."""
