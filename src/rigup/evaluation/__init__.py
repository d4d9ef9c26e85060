"""Evaluations: lm-evaluation-harness on the controlling machine against services on hosts; stored and compared.

May import run, project, connection and what lies below them.
"""
