"""Bug reports about a host: data collection, text, and redaction of secrets.

May import nouns, project and connection.
"""
