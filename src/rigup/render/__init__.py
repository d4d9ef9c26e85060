"""From a decision to what runs: argv, environment and the systemd unit."""
