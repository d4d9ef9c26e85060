"""Benchmarks of running services: run on the host, stored in the fleet folder, compared.

May import run, project, operations and what lies below them; not evaluation and tuning.
"""
