"""The parts of operations: commands, steps, jobs, root-owned files, units, users.

May import nouns and systemd; the other operations import it.
"""
