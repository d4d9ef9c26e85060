"""The gateways of a fleet during a run: drained before hosts change, asked who answers."""
