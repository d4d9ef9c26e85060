"""Downloads that the hosts of a run share."""
