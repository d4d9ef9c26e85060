"""Reads what an engine knows out of its package, without running any of it: one module an engine.

It gets packages that somebody else opened, and may import nouns and the catalogue.
"""
