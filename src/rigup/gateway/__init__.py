"""The gateway: one address for the models of a fleet. Reads `gateway = {...}`, decides its routes, renders its files.

Pure. It may import nouns, planner and systemd.
"""
