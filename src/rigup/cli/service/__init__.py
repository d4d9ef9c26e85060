"""Verbs about running services. May import what the other verbs may."""
