"""Writes pages and reports, and checks beforehand that they can be written."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rigup.cli.output.lines import tell
from rigup.errors import InputError
from rigup.printable import printable
from rigup.regular_files import replace_file

STANDARD_OUTPUT = "-"
HINT = "name a file in a writable folder, or - for standard output"


def check_page(args: argparse.Namespace) -> None:
    """Raises InputError for a --html that could not be written, before anything else is done."""
    if args.json and args.html == STANDARD_OUTPUT:
        raise InputError("--html - and --json: both would go to standard output", "name a file for the page")
    check_writable(args.html, "--html")


def write_html(path: str, text: str) -> None:
    """Writes the page of --html and prints its path to standard error."""
    write_page(path, text, "--html")
    if path != STANDARD_OUTPUT:
        tell(f"{path}: written")


def check_writable(path: str, flag: str) -> None:
    """Raises InputError naming flag and path if no file can be written there. Leaves no file behind."""
    if path == STANDARD_OUTPUT:
        return
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            what = "Is a directory" if target.is_dir() else "not a regular file"
            raise InputError(f"{flag}: {path}: {what}", HINT)
        with tempfile.TemporaryFile(dir=target.resolve().parent):
            pass
    except OSError as error:
        raise InputError(f"{flag}: {path}: {error.strerror}", HINT) from None


def write_page(path: str, text: str, flag: str, mode: int | None = None) -> None:
    """Replaces the file atomically: readers see the old page or the new one. "-" is standard output.

    mode: permissions of the file; None keeps those of an existing file, or uses the umask.
    """
    text = printable(text)
    if path == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    try:
        replace_file(Path(path).resolve(), text.encode(), mode)
    except OSError as error:
        raise InputError(f"{flag}: {path}: {error.strerror}", HINT) from None
