"""The benchmark client that runs on a host. File names are unique: on a host all programs share one folder."""
