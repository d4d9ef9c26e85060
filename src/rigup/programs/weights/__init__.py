"""The download of weights that runs on a host, and the server for other hosts.

File names are unique: on a host programs lie side by side in one folder.
"""
