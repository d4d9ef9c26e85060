"""The benchmark client that runs on a host. File names are unique: on a host programs lie side by side."""
