"""The commands: one file a verb. The only place that draws tables and knows what a terminal is."""
