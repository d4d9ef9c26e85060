"""The download of weights that runs on a host, and the server for other hosts.

File names are unique: on a host all programs share one folder.
"""
