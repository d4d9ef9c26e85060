"""Services over several hosts: node addresses, ports, layouts, conflicts between services."""
