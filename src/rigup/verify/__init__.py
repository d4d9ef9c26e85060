"""Proof that a service works: a real generation, asked on the host itself."""
