"""`rigup.lock`: finds out what plans need, resolves it to versions and hashes, writes and vendors it.

May import nouns, catalogue, planner, project and sources. The lock as a value is `rigup.lock`.
"""
