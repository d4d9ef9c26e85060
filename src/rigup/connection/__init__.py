"""Connections to hosts: SSH and sudo, the handshake, the lease, cached facts; pyinfra's internals in one module.

May import nouns, facts, programs, project and operations.primitives.
"""
