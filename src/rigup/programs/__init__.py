"""Programs that run on a host, each one file on Python 3.10's standard library, so that copying it is installing it."""
