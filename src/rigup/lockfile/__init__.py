"""`rigup.lock`: collects what plans need, resolves it to versions and hashes, writes it, and vendors it.

May import nouns, catalogue, planner, project and sources. The lock itself is a value in `rigup.lock`.
"""
