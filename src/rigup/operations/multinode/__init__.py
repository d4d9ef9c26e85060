"""Services of a node group on hosts: barrier, peers, firewall, releases that change together."""
