"""Programs that run on hosts, whose Python may be 3.10. Those that need more than its standard library say so.

Copying a file installs it. File names are unique: on a host all share one folder and import one another by name.
"""

from __future__ import annotations

from pathlib import Path


def program_file(name: str) -> Path:
    """The file of a program, e.g. "ask.py". Raises LookupError for an unknown name."""
    for path in Path(__file__).parent.rglob(name):
        return path
    raise LookupError(name)
