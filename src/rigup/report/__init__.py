"""Reports about a host: what is collected, as text, with secrets redacted.

May import nouns, project and connection.
"""
