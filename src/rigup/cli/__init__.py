"""The commands, one module per verb. Only this package draws tables and knows about terminals."""
