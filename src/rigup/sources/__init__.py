"""What the controlling machine reads from outside: hubs, package indexes, registries, archives.

May import nouns and catalogue; never pyinfra.
"""
