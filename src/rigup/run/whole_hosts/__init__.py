"""Hosts as a whole: what differs between two."""
