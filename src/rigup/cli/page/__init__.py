"""The pages that `rigup status --html` and `rigup report --html` write: one file each, no script.

May import cli.output and what lies below cli; never a verb.
"""
