"""Programs that run on gateways."""
