"""Services that span hosts: node addresses, layouts; and conflicts between services."""
