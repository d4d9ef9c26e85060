"""Runs over hosts: apply, diff, status, rollback, rollout, prune; and the records they leave.

May import everything but bench, evaluation, tuning, lockfile, deploy and cli.
"""
