"""Checks whether a host is what its plan expects: operating system, driver, rig, ports, disk.

May import nouns, catalogue, planner, facts and operations.
"""
