"""Code shared by verbs: options, opening a run over the inventory's hosts, and closing it.

May import cli.output and what lies below cli; never a verb.
"""
