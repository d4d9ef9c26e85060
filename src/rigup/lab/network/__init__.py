"""The lab's network: addresses, namespaces, and the way in from this machine."""
