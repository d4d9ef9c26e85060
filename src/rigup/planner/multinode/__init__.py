"""Services over several hosts: node addresses, layouts, conflicts between services."""
