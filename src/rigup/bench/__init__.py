"""Benchmarks of running services: run on the host, stored in the fleet folder, compared.

May import run, project, operations and what lies below them; evaluation and tuning are its neighbours, not its parts.
"""
