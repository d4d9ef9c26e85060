"""The stand-in for a model hub: its content, protocol and faults, and the process that serves it."""
