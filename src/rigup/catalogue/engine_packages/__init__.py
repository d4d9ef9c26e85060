"""Reads what an engine knows out of its package, without running any of it: one module an engine.

Imports nothing but nouns and the catalogue's own; where packages come from is not its business.
"""
